"""Django: settings checked, one producer, publishing after the commit, the command's handlers."""

import io

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import override_settings

from nsqclient import (
    Config, Consumer, GiveUp, InvalidMessageError, InvalidTopicError, PublishError, RetryTable,
    handler,
)
from nsqclient.cli.worker import build_command
from nsqclient.contrib.django import get_producer, publish, publish_on_commit
from nsqclient.contrib.django.management.commands.nsq_consume import Command, database_connections
from nsqclient.worker.registry import registry
from tests.support import django_settings
from tests.support.waiting import wait_until

django_settings.configure()


@pytest.fixture
def project(nsqd, tmp_path, monkeypatch):
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "NAME", str(tmp_path / "db.sqlite3"))
    with override_settings(NSQCLIENT={
        "NSQD_TCP_ADDRESSES": [nsqd.tcp_address],
        "OPTIONS": {"publish_timeout": 2, "default_requeue_delay": 0, "max_backoff_duration": 0},
    }):
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE rows (body TEXT)")
        yield nsqd
    connection.close()


def bodies(nsqd, topic="events"):
    nsqd.create_topic(topic)
    return [message.body for message in nsqd.messages(topic)]


def rows(body: str = "%") -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM rows WHERE body LIKE %s", [body])
        return cursor.fetchone()[0]


def insert(body: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO rows VALUES (%s)", [body])


def check() -> str:
    errors = io.StringIO()
    try:
        call_command("check", stderr=errors, stdout=errors)
    except Exception as exc:  # SystemCheckError is a CommandError with the whole text
        return str(exc)
    return errors.getvalue()


@pytest.mark.parametrize(("value", "words"), [
    (None, "NSQCLIENT is missing"), ({"NSQD_TCP_ADDRESSES": ["x:1"], "OPTION": {}}, "OPTIONS?"),
])
def test_the_system_check_reports_a_wrong_setting(value, words):
    with override_settings(NSQCLIENT=value):
        said = check()
    assert words in said and "nsqclient.E001" in said


def test_the_system_check_passes_with_valid_settings(project):
    assert check() == "System check identified no issues (0 silenced).\n"
    assert not project.commands


def test_publish_stores_with_one_producer(project):
    publish("events", b"one")
    assert get_producer().config.publish_timeout == 2.0
    assert get_producer() is get_producer() and bodies(project) == [b"one"]


def test_overriding_the_setting_gives_another_producer(project, nsqd_factory):
    publish("events", b"one")
    other = nsqd_factory()
    with override_settings(NSQCLIENT={"NSQD_TCP_ADDRESSES": [other.tcp_address]}):
        publish("events", b"two")
    publish("events", b"three")
    assert bodies(project) == [b"one", b"three"] and bodies(other) == [b"two"]


def test_a_missing_setting_raises_improperly_configured():
    with override_settings(NSQCLIENT=None):
        with pytest.raises(ImproperlyConfigured, match="write NSQCLIENT = "):
            publish("events", b"x")


def test_dead_letters_may_be_kept_in_the_database(project):
    in_use = []

    def keep(message):
        insert(f"{message.body.decode()}: {message.failure.reason}")
        in_use.append(connections["default"])  # of this thread

    handler("orders", "mail", retry=RetryTable({ValueError: GiveUp("no order")}),
            on_giving_up=keep)(fail)
    try:
        project.publish("orders", b"x")
        options = {"atomic": None, "skip_checks": True, "handlers": []}
        group = Command()._make_group(options, build_command().parse(()), None)
        group.start()
        wait_until(lambda: in_use and rows("x: no order"))
        assert all(group.stop(5)) and in_use[0].connection is None
    finally:
        registry.remove("orders", "mail")


def fail(message):
    raise ValueError(message.body)


def test_a_commit_publishes(project):
    with transaction.atomic():
        insert("a")
        publish_on_commit("events", b"first")
        publish_on_commit("events", bytearray(b"second"))
        assert bodies(project) == []
    assert bodies(project) == [b"first", b"second"]


def test_a_rollback_publishes_nothing(project):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        insert("a")
        publish_on_commit("events", b"never")
        raise ZeroDivisionError
    assert bodies(project) == [] and rows() == 0


@pytest.mark.parametrize(("topic", "body", "error"), [
    ("no topic", b"x", InvalidTopicError), ("events", b"x" * 2_000_000, InvalidMessageError),
])
def test_an_invalid_message_fails_before_the_commit(project, topic, body, error):
    with pytest.raises(error), transaction.atomic():
        insert("a")
        publish_on_commit(topic, body)
    assert rows() == 0


@pytest.mark.parametrize("robust", [False, True])
def test_a_failed_publish_after_the_commit_is_raised_or_logged(project, robust, caplog):
    project.stop()

    def order():
        with transaction.atomic():
            insert("a")
            publish_on_commit("events", b"x", timeout=0.2, robust=robust)

    if robust:
        order()
        assert "PublishNotSentError" in caplog.text
    else:
        with pytest.raises(PublishError):
            order()
    assert rows() == 1


@pytest.fixture
def consume(project):
    def run(handler, **options):
        config = {"default_requeue_delay": 0, "max_backoff_duration": 0}
        with Consumer("jobs", "c", handler, nsqd_tcp_addresses=[project.tcp_address],
                      config=Config(**config), middleware=[database_connections(**options)]):
            project.wait_until_empty("jobs", "c", timeout=20)
    return run


def test_each_message_leaves_no_old_connection(project, consume):
    seen = []

    def handler(message):
        insert(message.body.decode())
        seen.append(connection.connection)

    project.publish_many("jobs", [b"a", b"b"])
    consume(handler)
    assert rows() == 2 and len(set(map(id, seen))) == 2


def test_a_handler_in_a_transaction_does_all_or_nothing(project, consume):
    def handler(message):
        insert(f"attempt {message.attempts}")
        publish_on_commit("events", b"attempt %d" % message.attempts)
        if message.attempts == 1:
            raise ValueError("the first time")

    project.publish("jobs", b"x")
    consume(handler, atomic="default")
    assert rows("attempt 1") == 0 and rows("attempt 2") == 1
    assert bodies(project) == [b"attempt 2"]


def test_queries_are_not_kept(project, consume):
    counts = []

    def handler(message):
        counts.append(len(connection.queries))
        insert("a")

    project.publish_many("jobs", [b"a", b"b", b"c"])
    with override_settings(DEBUG=True):
        consume(handler)
    assert counts == [0, 0, 0]


@pytest.mark.parametrize(("words", "message", "status"), [
    (["json.loads"], "for a function give --topic and --channel", 2),
    (["json.loads", "--channel", "c"], "--channel is for one function", 2),
    (["json", "--workers", "2"], "--workers and --max-in-flight are for one function", 2),
    (["json.loads", "--topic", "t", "--channel", "c", "--workers", "0"], "workers must be", 1),
    (["json.loads", "--topic", "t", "--channel", "c", "--atomic", "nope"],
     "no database 'nope'", 2),
])
def test_the_command_rejects_wrong_arguments(project, words, message, status):
    with pytest.raises(CommandError, match=message) as caught:
        call_command("nsq_consume", *words)
    assert caught.value.returncode == status


def test_the_command_needs_good_settings():
    with override_settings(NSQCLIENT={}):
        with pytest.raises((CommandError, ImproperlyConfigured), match="NSQCLIENT"):
            call_command("nsq_consume", "json.loads", "--topic", "t", "--channel", "c")
