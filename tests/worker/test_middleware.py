"""The ready-made middleware: time limit, rate limit, log context."""

import contextlib
import logging
import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient import Config, ConfigError, Consumer, Handling, Message, Requeue
from nsqclient.testing import make_message
from nsqclient.worker import middleware
from nsqclient.worker.middleware import LogContext, RateLimit, TimeLimit, TimeLimitExceeded
from tests.support.waiting import wait_until

FIELDS = ("topic", "channel", "nsqd", "message_id", "attempts")


def fields_of(record: logging.LogRecord) -> tuple:
    return tuple(getattr(record, name) for name in FIELDS)


def test_records_of_a_handler_have_the_fields_of_its_message(nsqd, caplog):
    caplog.handler.addFilter(LogContext.filter)
    logger, ids = logging.getLogger("shop"), []

    def handle(message):
        ids.append(message.id.decode())
        logger.warning("inside")

    nsqd.publish("orders", b"x")
    try:
        with Consumer("orders", "c", handle, nsqd_tcp_addresses=[nsqd.tcp_address],
                      middleware=[LogContext()]):
            nsqd.wait_until_empty("orders", "c")
        logger.warning("outside")
    finally:
        caplog.handler.removeFilter(LogContext.filter)
    found = {record.message: fields_of(record) for record in caplog.records}
    assert found["inside"] == ("orders", "c", nsqd.tcp_address, ids[0], 1)
    assert found["outside"] == ("", "", "", "", 0)


def test_a_record_keeps_fields_of_its_own():
    record = logging.makeLogRecord({"topic": "mine"})
    assert LogContext.filter(record) is True
    assert fields_of(record) == ("mine", "", "", "", 0)


def handling(*messages, is_stopping=lambda: False) -> Handling:
    return Handling("t", "c", messages or (make_message(b"x"),), False, is_stopping)


def test_a_handler_past_its_limit_is_interrupted_and_its_message_requeued(nsqd, caplog):
    tries = []

    def handler(message):
        tries.append(message.attempts)
        while len(tries) == 1:
            threading.Event().wait(0.001)

    nsqd.publish("t", b"x")
    with Consumer("t", "c", handler, nsqd_tcp_addresses=[nsqd.tcp_address],
                  config=Config(max_backoff_duration=0), middleware=[TimeLimit(0.05)],
                  retry=lambda message, error: Requeue(delay=0)
                  if isinstance(error, TimeLimitExceeded) else None) as consumer:
        nsqd.wait_until_empty("t", "c")
        wait_until(lambda: consumer.stats().total.finished == 1)
    assert tries[:2] == [1, 2]  # on a busy machine also the second one may be late
    assert "ran for longer than its time limit" in caplog.text


def test_the_exception_arrives_within_the_handler_or_not_at_all():
    limit, hold, ends = TimeLimit(0.002), threading.Lock(), 0
    hold.acquire()
    for _ in range(200):
        with contextlib.suppress(TimeLimitExceeded):
            with limit(handling()):
                hold.acquire(timeout=0.002)  # in C: nothing arrives before it returns
        for _ in range(100):  # where a late exception would arrive
            ends += 1
    assert ends == 200 * 100


def test_a_handler_that_hangs_is_logged_with_its_stack(monkeypatch, caplog):
    monkeypatch.setattr(middleware, "_HANG_REPORT", 0.01)
    limit, lock = TimeLimit(0.01), threading.Lock()
    lock.acquire()

    def where_it_hangs():
        with limit(handling()):
            lock.acquire()

    def run():
        while not caplog.records:  # on a busy machine the exception may come before the call of C
            with contextlib.suppress(TimeLimitExceeded):
                where_it_hangs()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: caplog.records)
    lock.release()
    thread.join()
    record = caplog.records[0]
    assert record.message.startswith("t/c: the handler of <Message ")
    assert "its time limit is 0.01 s" in record.message and "where_it_hangs" in record.message


def test_limits_are_above_0():
    for make in (lambda: TimeLimit(0), lambda: TimeLimit(-1), lambda: RateLimit(0),
                 lambda: RateLimit(True), lambda: RateLimit("5"), lambda: RateLimit(1, 0),
                 lambda: RateLimit(float("nan"))):
        with pytest.raises(ConfigError):
            make()


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The clock of the middleware: a sleep moves it on."""
    clock = SimpleNamespace(now=100.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(middleware, "time", SimpleNamespace(
        monotonic=lambda: clock.now, sleep=sleep))
    return clock


def test_messages_begin_at_the_rate_of_their_consumer(clock):
    limit = RateLimit(30, window=60)
    for _ in range(5):
        limit(handling())
    assert clock.now == pytest.approx(108)
    limit(Handling("t", "other", (make_message(b"x"),), False))
    assert clock.now == pytest.approx(108)


def test_a_batch_waits_for_all_its_messages(clock):
    limit = RateLimit(100)
    limit(handling(*[make_message(b"x") for _ in range(51)]))
    assert clock.now == pytest.approx(100.5)
    clock.now += 60
    limit(handling(*[make_message(b"x") for _ in range(20)]))
    assert clock.now == pytest.approx(160.6)


def test_a_wait_ends_with_the_consumer(clock):
    limit = RateLimit(0.001)
    limit(handling())
    with pytest.raises(Requeue) as caught:
        limit(handling(is_stopping=lambda: True))
    assert (caught.value.delay, caught.value.backoff) == (0, False) and clock.now < 101


def test_a_message_that_has_expired_in_the_wait_is_not_handled(clock):
    dropped = []
    responder = SimpleNamespace(drop_expired=dropped.append)
    old = Message(b"x", b"1" * 16, 1, 0, 0, time.monotonic(), responder)
    with pytest.raises(Requeue):
        RateLimit(1000)(handling(old, make_message(b"y")))
    assert dropped == [old]
