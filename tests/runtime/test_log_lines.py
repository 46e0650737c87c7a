"""Log handlers that publish, and lines whose number a peer decides."""

import logging
import threading

import pytest

from nsqclient import Producer, discovery
from nsqclient.devserver import Nsqd
from nsqclient.http import models
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.threads import LibraryThread

logger = logging.getLogger("nsqclient.connection")


class Collecting(logging.Handler):
    """Keeps the messages, after ``work`` was called with the record."""

    def __init__(self, work=lambda record: None):
        super().__init__()
        self.seen, self.work = [], work

    def emit(self, record):
        self.seen.append(record.getMessage())
        self.work(record)


@pytest.fixture
def attach():
    """Attach handlers to the root logger, until the end of the test."""
    root, attached = logging.getLogger(), []

    def attach(handler):
        root.addHandler(handler)
        attached.append(handler)
        return handler

    before, root.level = root.level, logging.INFO
    yield attach
    root.level = before
    for handler in attached:
        root.removeHandler(handler)


def in_library_thread(call):
    thread = LibraryThread(call, "nsq-test")
    thread.launch()
    thread.join(30)
    assert not thread.is_alive()


def test_a_record_of_the_library_does_not_come_back_to_the_handler_that_caused_it(attach):
    publishing = attach(Collecting(lambda record: logger.info("connected")))
    other, strict = attach(Collecting()), attach(Collecting())
    strict.setLevel(logging.WARNING)
    logging.getLogger("app").info("hello")
    assert publishing.seen == ["hello"] and strict.seen == []
    assert sorted(other.seen) == ["connected", "hello"]
    logger.info("later")
    assert publishing.seen == ["hello", "later"]


def test_a_thread_of_the_library_does_not_wait_for_a_busy_handler(attach):
    """Records are dropped, and a later record reports their number."""
    busy, free = threading.Event(), threading.Event()

    def work(record):
        if record.name == "app":
            busy.set()
            assert free.wait(30)

    handler = attach(Collecting(work))
    thread = threading.Thread(target=logging.getLogger("app").info, args=("hello",))
    thread.start()
    assert busy.wait(30)
    in_library_thread(lambda: [logger.info("record %d", number) for number in range(3)])
    assert handler.seen == ["hello"]
    free.set()
    thread.join()
    in_library_thread(lambda: [logger.info("later"), logger.info("again")])
    assert handler.seen == [
        "hello", "3 log records of nsqclient were dropped: a log handler was busy", "later",
        "again"]


def test_a_thread_of_the_library_logs_at_once_where_the_handler_is_free(attach):
    """No other thread is needed for that, nor for a handler without a lock."""
    handler, without_lock = attach(Collecting()), attach(Collecting())
    without_lock.lock = None
    without_lock.handle = without_lock.emit
    in_library_thread(lambda: logger.info("connected"))
    assert handler.seen == without_lock.seen == ["connected"]


def test_a_handler_may_publish_its_records_also_those_of_the_library(attach):
    """The first record needs a connection, whose thread logs while the handler publishes."""
    with Nsqd() as nsqd, Producer([nsqd.tcp_address]) as producer:
        handler = attach(Collecting(
            lambda record: producer.publish("logs", record.getMessage().encode(), timeout=20)))
        handler.addFilter(lambda record: record.name in ("app", "nsqclient.connection"))
        for number in range(3):
            logging.getLogger("app").info("hello %d", number)
        assert [text for text in handler.seen if "hello" in text] == [
            f"hello {number}" for number in range(3)]
        logging.getLogger().removeHandler(handler)


def test_lines_beyond_the_limit_are_at_debug_for_ten_seconds(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    limit = LineLimit(2)
    levels = [limit.level(logging.WARNING) for _ in range(4)]
    assert levels == [logging.WARNING] * 2 + [logging.DEBUG] * 2
    now[0] += 10
    assert limit.level(logging.WARNING) == logging.WARNING


def test_thousands_of_unusable_entries_cause_few_lines(caplog):
    """An nsqlookupd may list any number of them in each answer."""
    unusable = models.Producer("", "", "", 0, 0, "")
    assert discovery.usable("127.0.0.1:4161", [unusable] * 3000) == []
    assert len(caplog.records) == 10
