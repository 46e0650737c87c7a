"""A terminal for the commands of the pages that start Spark."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.terminal import Command, Terminal

#: Seconds for a command; each JVM takes a minute to start on a machine that is very busy.
LIMIT = 800


@pytest.fixture
def run_command(cluster: Any, tmp_path: Path) -> Iterator[Callable[[str], Command]]:
    """Run a command of a page on the cluster until it succeeds; return the process."""
    with contextlib.closing(Terminal(tmp_path, cluster[1])) as terminal:
        terminal.environment["SPARK_LOCAL_IP"] = "127.0.0.1"

        def run(text: str) -> Command:
            started = terminal.start(text)
            assert started.end(LIMIT) == 0, started.log
            return started

        yield run
