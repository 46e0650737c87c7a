"""The examples of the topology page end well and print what the page shows."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Iterator

import pytest

from tests.support.docs.pages import ROOT, named

OUTPUTS = {
    "examples/topology_metrics.py": named("output of examples/topology_metrics.py"),
    "examples/topology_persistence.py": named("output of examples/topology_persistence.py"),
    "examples/topology_distributed.py": named("output of examples/topology_distributed.py"),
}


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Give the level of the log back, which an example changes for its process."""
    logger = logging.getLogger("nsqclient")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("path", OUTPUTS)
def test_an_example_prints_what_the_page_shows(path: str, capfd, leak_guard) -> None:
    """It runs as it stands, ends by itself, and leaves nothing behind."""
    [block] = OUTPUTS[path]
    runpy.run_path(str(ROOT / path), run_name="__main__")
    assert capfd.readouterr().out == block.text.rstrip("\n") + "\n"


def test_each_pattern_has_an_example() -> None:
    """Metrics collection, persistence, distributed systems."""
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("examples/topology_*.py")}
    assert found == set(OUTPUTS) and len(found) == 3
