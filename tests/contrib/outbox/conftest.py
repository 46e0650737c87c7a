"""The outbox in a database of each kind."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("django", reason="Django comes with the test extra")

from django.core.management import call_command  # noqa: E402 - after the check
from django.db import connections  # noqa: E402
from django.test import override_settings  # noqa: E402

from nsqclient import Producer  # noqa: E402
from examples.django_outbox.postgres import Postgres, find_programs  # noqa: E402
from tests.support import django_settings  # noqa: E402
from tests.support.servers.postgres import require_programs, running_postgres  # noqa: E402

django_settings.configure()


@pytest.fixture(scope="session", autouse=True)
def postgres() -> Iterator[Postgres | None]:
    if find_programs() is None:
        yield None
    else:
        with running_postgres() as server:
            yield server


@pytest.fixture(params=["default", "postgres"])
def alias(request, postgres, tmp_path, monkeypatch) -> Iterator[str]:
    """An empty outbox, in SQLite and in PostgreSQL: the alias of its database."""
    name = request.param
    connection = connections[name]
    connection.close()
    if name == "postgres":
        require_programs()
        monkeypatch.setitem(connection.settings_dict, "HOST", postgres.host)
    else:
        monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "db.sqlite3"))
    call_command("migrate", "nsqclient_outbox", database=name, verbosity=0)
    from nsqclient.contrib.django.outbox.models import OutboxMessage

    OutboxMessage.objects.using(name).all().delete()
    yield name
    connection.close()


@pytest.fixture
def producer(nsqd: Any) -> Iterator[Producer]:
    """Publish to the embedded nsqd, with a short timeout; it is that of the settings as well."""
    addresses = {"NSQD_TCP_ADDRESSES": [nsqd.tcp_address], "OPTIONS": {"publish_timeout": 2}}
    with override_settings(NSQCLIENT=addresses):
        from nsqclient.contrib.django import get_producer

        yield get_producer()
