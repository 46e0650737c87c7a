"""The outbox in a database of each kind."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from nsqclient import Producer
from examples.django_outbox.postgres import Postgres, find_programs
from tests.support import django_settings
from tests.support.servers.postgres import require_programs, running_postgres

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
    """The alias of a database with an empty outbox, in SQLite and in PostgreSQL."""
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
