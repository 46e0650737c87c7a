"""Waiting for a condition ends when it is true, or says what was waited for."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_until


def test_wait_until_returns_what_the_condition_returned():
    """The first true value is the result."""
    values = iter([0, None, "ready"])
    assert wait_until(lambda: next(values)) == "ready"


def test_wait_until_names_the_condition_that_stayed_false():
    """A condition that stays false is an error with its message and last value."""
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a miracle \(last value: 0\)"):
        wait_until(lambda: 0, timeout=0.05, message="a miracle")
