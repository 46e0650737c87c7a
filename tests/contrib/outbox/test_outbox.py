"""The outbox on SQLite and on PostgreSQL: committed messages are published, and no others."""

import logging
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone

from nsqclient import InvalidMessageError, InvalidTopicError, Producer
from nsqclient.contrib.django import publish_in_transaction
from nsqclient.contrib.django.outbox.models import OutboxMessage, due_messages
from nsqclient.contrib.django.outbox.relay import Relay, publish_all
from nsqclient.devserver import Nsqd
from tests.support.processes import LIMIT, start_threads
from tests.support.waiting import wait_until


def bodies(nsqd, topic="events"):
    nsqd.create_topic(topic)
    return [message.body for message in nsqd.messages(topic)]


def waiting(alias) -> list[bytes]:
    return [bytes(row.body) for row in OutboxMessage.objects.using(alias).order_by("id")]


def logged(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records
            if record.name == "nsqclient.outbox"]


@pytest.fixture
def store(alias, producer):
    def run(*texts, topic="events", **options):
        with transaction.atomic(using=alias):
            for text in texts:
                publish_in_transaction(topic, text.encode(), using=alias, **options)
    return run


def test_what_is_committed_is_published_and_deleted(alias, store, producer, nsqd):
    store("a", "b")
    store("c")
    assert bodies(nsqd) == [] and waiting(alias) == [b"a", b"b", b"c"]
    assert publish_all(Relay(alias, producer)) == ""
    assert bodies(nsqd) == [b"a", b"b", b"c"] and waiting(alias) == []


def test_what_is_rolled_back_is_never_published(alias, store, producer, nsqd):
    with pytest.raises(ZeroDivisionError):
        with transaction.atomic(using=alias):
            store("never")
            raise ZeroDivisionError
    with transaction.atomic(using=alias):
        with pytest.raises(ZeroDivisionError):
            with transaction.atomic(using=alias):
                store("nor this")
                raise ZeroDivisionError
        store("this")
    assert publish_all(Relay(alias, producer)) == ""
    assert bodies(nsqd) == [b"this"]


def test_without_a_transaction_it_raises(alias, producer):
    with pytest.raises(transaction.TransactionManagementError, match="transaction.atomic"):
        publish_in_transaction("events", b"x", using=alias)
    assert waiting(alias) == []


@pytest.mark.parametrize(("topic", "body", "options", "error"), [
    ("no topic", b"x", {}, InvalidTopicError), ("t", b"x" * 2_000_000, {}, InvalidMessageError),
    ("t", b"x", {"defer": 3601}, InvalidMessageError),
    ("t", b"x", {"key": ""}, InvalidMessageError),
    ("t", b"x", {"key": b"k"}, InvalidMessageError),
    ("t", b"x", {"key": "k" * 256}, InvalidMessageError),
    ("t", b"x", {"key": "k\0"}, InvalidMessageError),
    ("t", b"x", {"key": "k", "defer": 1}, InvalidMessageError),
])
def test_an_invalid_message_is_refused_at_the_call(alias, producer, topic, body, options, error):
    with pytest.raises(error), transaction.atomic(using=alias):
        publish_in_transaction(topic, body, using=alias, **options)


def test_without_the_app_the_error_says_what_to_install(producer):
    """Not every project needs the outbox, so it is a separate app."""
    with override_settings(INSTALLED_APPS=["nsqclient.contrib.django"]):
        with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
            publish_in_transaction("events", b"x")


def test_the_migration_has_every_change_of_the_model():
    call_command("makemigrations", "nsqclient_outbox", check_changes=True, dry_run=True)


def test_a_deferred_message_is_deferred_by_what_is_left(alias, store, producer, nsqd):
    """After that time the message is published immediately."""
    store("later", defer=timedelta(minutes=30))
    store("now", defer=0.001)
    wait_until(lambda: due_messages(alias, timezone.now()).filter(
        deliver_at__lt=timezone.now()).exists())
    assert publish_all(Relay(alias, producer)) == ""
    nsqd.create_channel("events", "c")
    states = wait_until(lambda: sorted(
        (message.body, message.state) for message in nsqd.messages("events", "c")))
    assert states == [(b"later", "deferred"), (b"now", "queued")]


def test_messages_outlive_an_outage_of_nsqd(alias, store, producer, nsqd, caplog):
    """They stay in the table. The relay logs the outage once, and its end."""
    store("a")
    nsqd.stop()
    with override_settings(NSQCLIENT={"NSQD_TCP_ADDRESSES": ["127.0.0.1:1"]}):
        store("b")  # publishing into the table needs no nsqd
    with Producer([nsqd.tcp_address], config=producer.config.replace(publish_timeout=0.2)) as quick:
        relay = Relay(alias, quick)
        with caplog.at_level(logging.INFO, "nsqclient.outbox"):
            assert 0 < relay.step() and 0 < relay.step() and "cannot publish" in relay.failure
            assert waiting(alias) == [b"a", b"b"]
            assert ["stay in the table" in line for line in logged(caplog)] == [True]
            with Nsqd(tcp_port=int(nsqd.tcp_address.rpartition(":")[2])) as again:
                wait_until(lambda: relay.step() and not waiting(alias))
                assert {b"a", b"b"} == set(bodies(again)) and not relay.failure
    assert any("working again" in line for line in logged(caplog))


@pytest.fixture
def nsqd_with_limit(nsqd_factory):
    nsqd = nsqd_factory(max_msg_size=100)
    with Producer([nsqd.tcp_address]) as producer:
        yield nsqd, producer


def test_a_message_that_nsqd_refuses_holds_nobody_up(alias, store, nsqd_with_limit):
    nsqd, producer = nsqd_with_limit
    store(*"abc", "x" * 200, *"def")
    relay = Relay(alias, producer)
    assert publish_all(relay).startswith("failed: ")
    assert bodies(nsqd) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    [row] = OutboxMessage.objects.using(alias)
    assert "E_BAD_MESSAGE" in row.error and row.failures >= 1 and row.retry_at > row.created_at


def test_messages_of_a_key_wait_for_a_failed_one(alias, store, nsqd_with_limit):
    nsqd, producer = nsqd_with_limit
    store("k1", "x" * 200, "k3", key="k")
    store("l1", key="l")
    store("k1", topic="other", key="k")
    relay = Relay(alias, producer)
    publish_all(relay)
    table = OutboxMessage.objects.using(alias)
    table.filter(failures__gt=0).update(retry_at=timezone.now() + timedelta(hours=1))
    publish_all(relay)
    assert bodies(nsqd) == [b"k1", b"l1"] and bodies(nsqd, "other") == [b"k1"]
    assert len(waiting(alias)) == 2
    table.filter(failures__gt=0).update(body=b"k2", retry_at=None)
    publish_all(relay)
    assert bodies(nsqd) == [b"k1", b"l1", b"k2", b"k3"]


postgres_only = pytest.mark.parametrize("alias", ["postgres"], indirect=True)


@postgres_only
def test_rows_that_another_relay_has_are_left_alone(alias, store, producer, nsqd):
    def store_more_and_relay():
        try:
            store("b")
            store("k2", key="k")
            store("l", key="l")
            publish_all(Relay(alias, producer))
        finally:
            connections.close_all()

    store("a")
    store("k", key="k")
    first = Relay(alias, producer)
    with first._claim(2, 1.0) as rows:
        assert [bytes(row.body) for row in rows] == [b"a", b"k"]
        [thread] = start_threads(1, store_more_and_relay)
        thread.join(LIMIT)
        assert bodies(nsqd) == [b"b"]
    publish_all(first)
    assert bodies(nsqd) == [b"b", b"a", b"k", b"k2", b"l"]


@postgres_only
def test_a_relay_that_is_frozen_loses_its_rows_to_others(alias, store, producer, monkeypatch):
    """PostgreSQL ends its transaction. The relay then continues with the next batch."""
    monkeypatch.setattr("nsqclient.contrib.django.outbox.relay._FROZEN", 0.0)
    store("a")
    relay = Relay(alias, producer)
    psycopg, host = pytest.importorskip("psycopg"), connections[alias].settings_dict["HOST"]
    with pytest.raises(Exception, match="idle-in-transaction|closed|terminating"):
        with relay._claim(1, 0.01):
            def is_ended():
                with psycopg.connect(host=host, user="nsq", dbname="postgres") as other:
                    return not other.execute(
                        "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
                    ).fetchall()

            wait_until(is_ended)
            OutboxMessage.objects.using(alias).count()
    connections[alias].close()
    assert publish_all(relay) == "" and waiting(alias) == []


def test_a_relay_reports_what_it_did_and_what_waits(alias, store, producer, nsqd_with_limit):
    from nsqclient.metrics.prometheus import NSQCollector, render

    _, other = nsqd_with_limit
    store("a", "b", "x" * 200)
    relay = Relay(alias, other, measures=True)
    publish_all(relay)
    relay.counters.measure(alias)
    producers = NSQCollector(None)
    producers.add_producer(other)
    text = render([*relay.counters.collect(), *producers.collect()])[1].decode()
    for line in ('nsq_outbox_published_total{topic="events"} 2.0',
                 'nsq_outbox_failed_total{topic="events"}', "nsq_outbox_waiting 1.0",
                 "nsq_outbox_waiting_failed 1.0", "nsq_outbox_failures_total 0.0",
                 'nsq_producer_messages_total{outcome="stored",producer="default"}'):
        assert line in text
