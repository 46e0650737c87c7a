"""How property tests run: the same examples each time, and no limit on one example's time."""

from hypothesis import settings

#: Decorator of every ``@given`` test. Deterministic: a red test stays red until it is mended.
fuzz = settings(deadline=None, derandomize=True, max_examples=100)
