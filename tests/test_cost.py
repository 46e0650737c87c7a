"""What a message costs in the pure packages, counted in bytecodes: a guard against slow decay."""

import pytest

from tests.support.docs.pages import load

#: How much a cost may rise before the test fails; note the new cost if the change is worth it.
RISE = 1.2

cost = load("benchmarks/cost.py")


@pytest.mark.parametrize("name", sorted(cost.WORKS))
def test_a_message_costs_no_more_than_it_did(name):
    noted = cost.noted()
    if noted is None:
        pytest.skip(f"no costs are noted for Python {cost.VERSION}")
    # Far less would mean that nothing is counted.
    assert noted[name] / 10 < cost.measure(name) <= RISE * noted[name]
