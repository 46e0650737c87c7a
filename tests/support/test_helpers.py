"""PostgreSQL of the example and of the tests."""

import os

import pytest

from examples.django_outbox.postgres import Postgres
from tests.support.servers import postgres


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as the user of the tests")
def test_postgresql_runs_where_its_user_cannot_reach_the_programs(tmp_path):
    """As root in a checkout below /root: its user is another one."""
    programs = postgres.require_programs()
    package, hidden = programs.parent.parent, tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for folder in package.parent.glob(f"{package.name}*"):
        (hidden / folder.name).symlink_to(folder)
    Postgres(hidden / package.name / programs.parent.name / "bin").close()
