"""The examples of the topology page end well and print what the page shows."""

import runpy

import pytest

from tests.support.docs.pages import ROOT, named

OUTPUTS = {
    "examples/topology_metrics.py": named("output of examples/topology_metrics.py"),
    "examples/topology_persistence.py": named("output of examples/topology_persistence.py"),
    "examples/topology_distributed.py": named("output of examples/topology_distributed.py"),
}


@pytest.mark.parametrize("path", OUTPUTS)
def test_an_example_prints_what_the_page_shows(path: str, capfd, leak_guard) -> None:
    [block] = OUTPUTS[path]
    runpy.run_path(str(ROOT / path), run_name="__main__")
    assert capfd.readouterr().out == block.text.rstrip("\n") + "\n"
