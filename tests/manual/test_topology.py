"""The examples of the topology page end well and print what the page shows."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Iterator

import pytest

from tests.support.pages import ROOT, Block, blocks

PAGE = "docs/topics/topology.rst"
OUTPUTS = [block for block in blocks(PAGE, "text") if block.mark.startswith("output-of-")]


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Give the level of the log back, which an example changes for its process."""
    logger = logging.getLogger("nsqclient")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("block", OUTPUTS, ids=lambda block: block.mark[10:])
def test_an_example_prints_what_the_page_shows(block: Block, capfd, leak_guard) -> None:
    """It runs as it stands, ends by itself, and leaves nothing behind."""
    runpy.run_path(str(ROOT / block.mark.removeprefix("output-of-")), run_name="__main__")
    assert capfd.readouterr().out == block.text.rstrip("\n") + "\n"


def test_each_pattern_has_an_example() -> None:
    """Metrics collection, persistence, distributed systems."""
    names = {path.name for path in ROOT.glob("examples/topology_*.py")}
    assert {block.mark.rsplit("/", 1)[1] for block in OUTPUTS} == names
    assert len(names) == 3
