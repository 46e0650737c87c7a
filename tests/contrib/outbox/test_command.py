"""``manage.py nsq_relay`` as a command and as a process."""

import os
import signal

import pytest
import requests
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from nsqclient.contrib.django import publish_in_transaction
from tests.contrib.outbox.test_outbox import bodies, waiting
from tests.support import django_settings
from tests.support.processes import CHECKOUT, LIMIT
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import running_postgres
from tests.support.servers.web_servers import end, program
from tests.support.waiting import wait_until


def store(alias, *texts) -> None:
    with transaction.atomic(using=alias):
        for text in texts:
            publish_in_transaction("events", text.encode(), using=alias)


def test_once_publishes_what_waits_and_ends(alias, producer, nsqd):
    store(alias, *(f"{n}" for n in range(250)))
    call_command("nsq_relay", "--once", "--database", alias)
    assert bodies(nsqd) == [b"%d" % n for n in range(250)] and waiting(alias) == []


def test_once_fails_when_nothing_can_be_published(alias, producer, nsqd):
    store(alias, "a")
    nsqd.stop()
    with pytest.raises(CommandError, match="cannot publish: .*refused"):
        call_command("nsq_relay", "--once", "--database", alias)
    assert waiting(alias) == [b"a"]


def test_in_a_test_case_of_the_application_it_publishes_too(alias, producer, nsqd):
    """The test case runs in a transaction that is never committed."""
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        store(alias, "a")
        call_command("nsq_relay", "--once", "--database", alias)
        assert bodies(nsqd) == [b"a"] and waiting(alias) == []
        raise ZeroDivisionError


@pytest.mark.parametrize(("flags", "message"), [
    (["--database", "nope"], "no database 'nope'"), (["--batch-size", "0"], "--batch-size must"),
    (["--interval", "0"], "--interval must"), (["--health-address", "x"], "--health-address"),
])
def test_a_wrong_flag_is_a_usage_error(producer, monkeypatch, tmp_path, flags, message):
    monkeypatch.setattr("nsqclient.contrib.django.outbox.management.commands.nsq_relay."
                        "_check_table", lambda using: None)
    with pytest.raises(CommandError, match=message) as caught:
        call_command("nsq_relay", *flags)
    assert caught.value.returncode == 2


def test_without_the_table_it_says_what_to_run(alias, producer):
    call_command("migrate", "nsqclient_outbox", "zero", database=alias, verbosity=0)
    with pytest.raises(CommandError, match="migrate nsqclient_outbox"):
        call_command("nsq_relay", "--database", alias)


@pytest.fixture
def relay(alias, producer, nsqd, tmp_path):
    def start(*flags):
        at = connections[alias].settings_dict
        place = {"POSTGRES": at["HOST"]} if alias == "postgres" else {"DATABASE": at["NAME"]}
        env = {
            **os.environ, "PYTHONPATH": str(CHECKOUT), "NSQD_TCP_ADDRESS": nsqd.tcp_address,
            "DJANGO_SETTINGS_MODULE": django_settings.__name__, "PYTHONUNBUFFERED": "1", **place,
        }
        return program(CHECKOUT, env, tmp_path / "log", "-m", "django", "nsq_relay", *flags)
    return start


def test_a_relay_publishes_until_a_signal(alias, relay, nsqd, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    store(alias, "a")
    with relay("--health-address", address, "--metrics-address", address) as process:
        wait_until(lambda: waiting(alias) == [], LIMIT)
        store(alias, "b")
        wait_until(lambda: waiting(alias) == [], LIMIT)
        assert requests.get(f"http://{address}/ready", timeout=LIMIT).json()["ready"]
        assert requests.get(f"http://{address}/live", timeout=LIMIT).ok
        text = requests.get(f"http://{address}/metrics", timeout=LIMIT).text
        assert end(process, signal.SIGINT) == 0
    assert bodies(nsqd) == [b"a", b"b"]
    assert 'nsq_outbox_published_total{topic="events"} 2.0' in text
    said = (tmp_path / "log").read_text()
    assert f"publishing the outbox of database default with <Producer {nsqd.tcp_address}" in said
    assert f"answering /live and /ready and /metrics on http://{address}" in said
    assert "Traceback" not in said


@pytest.mark.long
@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_relay_outlives_a_restart_of_the_database(alias, relay, nsqd, tmp_path, monkeypatch):
    address = f"127.0.0.1:{free_port()}"

    def readiness():
        return requests.get(f"http://{address}/ready", timeout=LIMIT).status_code

    with running_postgres() as database:
        connections[alias].close()
        monkeypatch.setitem(connections[alias].settings_dict, "HOST", database.host)
        call_command("migrate", "nsqclient_outbox", database=alias, verbosity=0)
        with relay("--health-address", address) as process:
            wait_until(lambda: "Ctrl-C" in (tmp_path / "log").read_text(), LIMIT)
            connections[alias].close()
            database.stop()
            wait_until(lambda: readiness() == 503, LIMIT)
            database.start()
            store(alias, "a")
            wait_until(lambda: waiting(alias) == [] and readiness() == 200, LIMIT)
            assert end(process) == 0
        connections[alias].close()
    assert bodies(nsqd) == [b"a"]
    said = (tmp_path / "log").read_text()
    assert "the database failed" in said and "working again" in said and "Traceback" not in said
