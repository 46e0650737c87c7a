"""What a message costs in the pure packages, counted in bytecodes: a guard against slow decay."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "benchmarks" / "cost.py"
#: How much a cost may rise before the test fails; note the new cost if the change is worth it.
RISE = 1.2


def load() -> ModuleType:
    """Import benchmarks/cost.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("benchmarks_cost", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cost = load()


@pytest.mark.parametrize("name", sorted(cost.WORKS))
def test_a_message_costs_no_more_than_it_did(name):
    """The bytecodes of a message have not risen by a fifth since they were noted."""
    noted = cost.noted()
    if noted is None:
        pytest.skip(f"no costs are noted for Python {cost.VERSION}")
    assert cost.measure(name) <= RISE * noted[name]


def test_twice_the_work_costs_twice_as_much():
    """Twice the work costs twice as much, so a rise is seen."""
    def once():
        return [number for number in range(1000)]

    if cost.noted() is None:
        pytest.skip(f"bytecodes are not counted on Python {cost.VERSION}")
    single = cost.count(once)
    assert single > 1000
    assert cost.count(lambda: (once(), once())) > 1.9 * single
