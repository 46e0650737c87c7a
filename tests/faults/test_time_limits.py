"""Exceptions that a time limit raises in a worker's thread, at any moment: no worker is lost."""

from __future__ import annotations

import ctypes
import logging
import random
import sys
import threading

import pytest

from nsqclient import BatchHandler, Config, Consumer
from tests.faults.dialogues import FULL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MESSAGES = 20_000 if FULL else 2000
#: No failure stops the flow or defers a message. An exception in the middle of a write ends the
#: connection, and nsqd delivers its messages again after their timeout.
CONFIG = Config(
    max_attempts=0, default_requeue_delay=0, max_backoff_duration=0, msg_timeout=2,
)


class TimeLimit(BaseException):
    """As dramatiq's, no Exception."""


def raise_in(thread):
    """Raise in another thread, at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TimeLimit))


def workers():
    return [thread for thread in threading.enumerate()
            if thread.name.startswith("nsq-worker") and thread.ident is not None]


@pytest.fixture
def interrupted(monkeypatch):
    """Context in which a thread raises in the workers, about every millisecond.

    Python ignores what arrives in a finalizer or a weakref callback; so does the test.
    """
    report = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: (
        None if ignored.exc_type is TimeLimit else report(ignored)))
    over = threading.Event()

    def interrupt():
        while not over.wait(random.random() * 0.002):
            running = workers()
            if running:
                raise_in(random.choice(running))

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield over.set
    over.set()
    thread.join()


@pytest.mark.parametrize("make", [lambda handler: handler, lambda handler: BatchHandler(
    lambda batch: [handler(message) for message in batch] and None, 20, max_wait=0.05)])
def test_workers_outlive_time_limits_and_no_message_stays_with_them(
    make, server, interrupted, caplog
):
    """Every message is handled and finished, and all workers run at the end."""
    caplog.set_level(logging.CRITICAL, "nsqclient")
    handled = set()

    def handle(message):
        sum(range(100))
        handled.add(message.body)

    bodies = {b"%d" % number for number in range(MESSAGES)}
    server.post("/mpub", b"\n".join(bodies), topic="events")
    with Consumer(
        "events", "c", make(handle), nsqd_tcp_addresses=[server.tcp_address], max_in_flight=100,
        workers=4, config=CONFIG,
    ) as consumer:
        wait_until(lambda: len(handled) > MESSAGES * 0.9, 120)
        interrupted()
        wait_until(lambda: handled == bodies, 60)
        wait_until(lambda: consumer.stats().total.finished >= MESSAGES, 60)
        wait_until(lambda: len(workers()) == 4, 30)
        wait_until(consumer.healthy, 30)  # a reader may have been the last to be interrupted
