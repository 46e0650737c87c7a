"""Handlers that are slower than msg_timeout, messages that user code gives up, and stops."""

import logging
import re

import pytest

from nsqclient import BatchHandler, Config, Consumer, GiveUp
from nsqclient.devserver import Nsqd
from tests.support.waiting import wait_until


@pytest.fixture
def nsqd(leak_guard):
    with Nsqd(msg_timeout=0.2) as server:
        yield server


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "nsqclient.consumer")
    return lambda text: [one for one in caplog.messages if text in one]


class Slow:
    """A handler that ends after the message has timed out."""

    def __init__(self):
        self.ended = []

    def __call__(self, message):
        wait_until(lambda: message.time_left < -0.05)
        self.ended.append(message.id)


def consume(nsqd, handler, **options):
    options.setdefault("config", Config(msg_timeout=0, default_requeue_delay=0))
    return Consumer("events", "c", handler, nsqd_tcp_addresses=[nsqd.tcp_address], **options)


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_late_handler_is_named_once_and_what_to_do(nsqd, lines, is_batch):
    slow = Slow()
    handler = BatchHandler(lambda batch: slow(batch[0]), 1) if is_batch else slow
    with consume(nsqd, handler):
        nsqd.publish("events", b"x")
        wait_until(lambda: len(slow.ended) >= 3)
    [line] = lines("longer than msg_timeout")
    assert re.fullmatch(
        r"events/c: handler .* took [0-9.]+ s, longer than msg_timeout 0.2 s: raise msg_timeout,"
        r" or call touch\(\) or keep_alive\(\)", line)


def test_a_message_that_succeeded_late_is_told_from_one_that_failed(nsqd):
    given_up = []
    with consume(nsqd, Slow(), config=Config(max_attempts=2, default_requeue_delay=0),
                 on_giving_up=lambda message: given_up.append(message.failure.reason)):
        nsqd.publish("events", b"x")
        wait_until(lambda: given_up)
    assert given_up == [
        "delivered 3 times, and max_attempts is 2; its handler succeeded 2 times, but later than"
        " msg_timeout 0.2 s: raise msg_timeout, or call touch() or keep_alive()"]


@pytest.mark.parametrize("how", ["raise", "async", "batch", "loop"])
def test_a_message_is_given_up_with_a_reason_everywhere(how):
    given_up, held = [], []

    def handle(message):
        if how == "raise":
            raise GiveUp("no such order")
        message.enable_async()
        held.append(message)

    def on_giving_up(message):
        given_up.append((message.body, message.failure.reason))

    handler = {"batch": BatchHandler(lambda batch: batch[0].give_up("no such order"), 1),
               "loop": None}.get(how, handle)
    with Nsqd() as nsqd:
        with consume(nsqd, handler, on_giving_up=on_giving_up) as consumer:
            nsqd.publish("events", b"x")
            if how == "async":
                wait_until(lambda: held)
                held[0].give_up("no such order")
            for message in consumer.messages(timeout=20) if how == "loop" else ():
                message.give_up("no such order")
                break
            wait_until(lambda: consumer.stats().total.given_up)
            nsqd.wait_until_empty("events", "c")
    assert given_up == [(b"x", "no such order")]


def test_a_handler_that_collects_messages_is_told_of_the_stop():
    held = []

    def flush():
        for message in held:
            message.finish()

    def handle(message):
        message.enable_async()
        held.append(message)

    with Nsqd() as nsqd:
        consumer = consume(nsqd, handle, on_stop=flush, max_in_flight=5)
        consumer.start()
        nsqd.publish_many("events", [b"1", b"2", b"3"])
        wait_until(lambda: len(held) == 3)
        assert not consumer.is_stopping
        report = consumer.stop()
        assert consumer.is_stopping and report and report.finished == 3
        nsqd.wait_until_empty("events", "c")


def test_max_in_flight_fits_batches_and_workers(lines):
    for handler, options, found in (
        (print, {}, 1), (print, {"workers": 8}, 8), (BatchHandler(print, 40), {"workers": 2}, 80),
        (BatchHandler(print, 40), {"max_in_flight": 5}, 5),
        (print, {"config": Config(max_in_flight=3)}, 3),
    ):
        consumer = Consumer("t", "c", handler, nsqd_tcp_addresses=["127.0.0.1:1"], **options)
        assert consumer.max_in_flight == found
        consumer.stop()


@pytest.mark.parametrize("handler, workers, given, text", [
    (BatchHandler(print, 40), 1, 5, "max_in_flight 5 is less than the batch size 40"),
    (print, 8, 1, "max_in_flight 1 leaves 7 of 8 workers idle: set it to at least 8"),
])
def test_a_given_max_in_flight_that_is_too_small_is_warned_of(
    nsqd, lines, handler, workers, given, text
):
    with consume(nsqd, handler, workers=workers, max_in_flight=given):
        wait_until(lambda: lines(text))


def test_mistakes_are_met_with_what_to_write(nsqd):
    consumer = consume(nsqd, print)
    with pytest.raises(TypeError, match=r"loop over consumer.messages\(\)"):
        list(consumer)
    with pytest.raises(AttributeError, match=r"write stats\(\).total.finished"):
        consumer.stats().finished
    with pytest.raises(Exception, match=r"write DeadLetterTopic\(producer, 't.dead'\)"):
        consume(nsqd, print, on_giving_up="t.dead")
    consumer.stop()
    with Consumer("t", "c", print, nsqd_tcp_addresses=["127.0.0.1:1"]) as other:
        wait_until(lambda: "not connected to any nsqd: " in other.healthy().reason)
