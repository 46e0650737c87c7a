"""Exceptions from signal handlers in the middle of calls: nothing stays taken, nothing is lost.

The first tests raise at each point of a call in turn where CPython lets signal handlers run. The
last one uses signals, at random moments, in a process of its own.
"""

import contextlib
import logging
import random
import signal
import sys
import threading
from collections import Counter

import pytest

from nsqclient import Config, Consumer, Producer, partitioned
from nsqclient.devserver import PartitionedCluster
from nsqclient.runtime.threads import LibraryThread
from tests.faults.dialogues import FULL
from tests.support.faults.interrupts import Interruption
from tests.support.processes import in_child, start_threads
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120)]

#: Interrupts by signals for each kind of exception.
COUNT = 3000 if FULL else 60
#: Every point in the full form, else every seventh, each time from another one on.
STEP = 1 if FULL else 7


class Expired(Exception):
    """Raised by a watchdog."""


def interrupt_each_point(work, first=0, step=STEP):
    """Call ``work(interruption)`` again and again; return at which point no interruption came.

    It interrupts a call, a few points later each time, and checks the leftovers.
    """
    number = first
    while True:
        interruption = Interruption(number, error=Expired)
        work(interruption)
        if not interruption.has_come:
            return number
        number += step


CALLS = {
    "publish": lambda producer: producer.publish("events", b"x", timeout=20),
    "publish_many": lambda producer: producer.publish_many("events", [b"x"] * 3, timeout=20),
    "publish_async": lambda producer: producer.publish_async("events", b"x").result(20),
    "flush": lambda producer: producer.publish_async("events", b"x") and producer.flush(20),
    "ping": lambda producer: producer.ping(20),
}


def check_interrupted_call(producer, call, name):
    """Interrupt a call at each point: the next publishes are stored, and close() is clean."""
    producer.publish("events", b"x")

    def work(interruption):
        try:
            with interruption:
                call(producer)
        except Expired:
            pass
        else:
            assert not interruption.has_come, f"swallowed: {interruption.place}"
        producer.publish("events", b"x", timeout=20)
        assert producer.flush(20), interruption.place

    assert interrupt_each_point(work, sum(map(ord, name)) % STEP) > 20
    assert producer.close(20)


def check_interrupted_first_publish(make, step, **options):
    """Interrupt the first publish of new producers at each point: the next one is stored."""
    def work(interruption):
        producer = make()
        with contextlib.suppress(Expired), interruption:
            producer.publish("events", b"x", timeout=20, **options)
        producer.publish("events", b"x", timeout=20, **options)
        # With a key a lookup may be under way, which close() does not wait for.
        assert producer.close(20) or options, interruption.place

    assert interrupt_each_point(work, step=step) > 50


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_interrupted_anywhere_leaves_the_producer_usable(name, server):
    with Producer([server.tcp_address], config=Config(publish_timeout=20)) as producer:
        check_interrupted_call(producer, CALLS[name], name)


def test_an_interrupted_first_publish_leaves_the_producer_usable(server):
    """While threads are started and an nsqd is dialed."""
    check_interrupted_first_publish(lambda: Producer([server.tcp_address]), 3 * STEP)


def test_an_interrupted_first_publish_to_a_partition_leaves_the_producer_usable(leak_guard):
    """While the cluster is detected, the leaders are looked up, and a leader is dialed."""
    with PartitionedCluster(2, 1) as cluster:
        cluster.create_topic("events", 2)
        lookupds = cluster.lookupd_http_addresses
        check_interrupted_first_publish(
            lambda: partitioned.Producer(lookupd_http_addresses=lookupds), 5 * STEP, key="k")


def test_an_interrupted_loop_leaves_the_consumer_usable(server):
    """Starting included: the next loop gets messages, and stop() is complete."""
    # Each point costs messages an attempt, and may requeue one: none is given up or deferred.
    config = Config(max_attempts=0, default_requeue_delay=0)

    def work(interruption):
        consumer = Consumer(
            "events", "c", nsqd_tcp_addresses=[server.tcp_address], max_in_flight=5, config=config,
        )
        loops = []
        with contextlib.suppress(Expired), interruption:
            loops.append(consumer.messages(timeout=20))
            next(loops[0])
            loops[0].close()  # else a finalizer does it, whose exceptions Python drops
        loops.append(consumer.messages(timeout=20))
        assert next(loops[-1], None) is not None, interruption.place
        for loop in loops:
            loop.close()
        producer.publish("events", b"x")
        assert consumer.stop(20), interruption.place

    with Producer([server.tcp_address]) as producer:
        producer.publish_many("events", [b"x"] * 20)
        assert interrupt_each_point(work, step=6 * STEP) > 50


def test_a_start_that_failed_is_completed_by_the_next(server, monkeypatch):
    launches = []
    launch = LibraryThread.launch

    def refuse(thread):
        launches.append(thread.name)
        if len(launches) == 3:
            raise RuntimeError("can't start new thread")
        launch(thread)

    received = []
    consumer = Consumer(
        "events", "c", lambda message: received.append(message.body),
        nsqd_tcp_addresses=[server.tcp_address], workers=2,
    )
    with monkeypatch.context() as context:
        context.setattr(LibraryThread, "launch", refuse)
        with pytest.raises(RuntimeError):
            consumer.start()
    assert not consumer.healthy() and "not started" in consumer.healthy().reason
    with consumer, Producer([server.tcp_address]) as producer:
        producer.publish("events", b"x")
        wait_until(lambda: received == [b"x"])


def interrupt_at_random(address, error):
    """Raise from a signal handler in calls of a producer and a consumer; others publish, too."""
    seen, is_armed, over = Counter(), False, threading.Event()

    def on_alarm(signum, frame):
        nonlocal is_armed
        if is_armed:
            is_armed = False
            seen["raised"] += 1
            raise error("from a signal handler")

    def repeat(call):  # a function, since Python 3.13 leaves jumps back out of a try
        while is_armed:
            call()

    def take():
        for _ in consumer.messages(timeout=0.5):
            if not is_armed:  # Python dropped the exception, in a finalizer; messages never end
                break

    def publish_on():
        while not over.is_set():
            producer.publish("events", b"y")

    # Python itself drops an exception in a finalizer; logging's handlers, one while they write.
    sys.unraisablehook = lambda args: seen.update(["in a finalizer"])
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())
    logging.getLogger("nsqclient").propagate = False  # to pytest's handlers
    # LogRecord drops every Exception that comes while it reads these two names.
    logging.logMultiprocessing = False
    logging.logAsyncioTasks = False
    signal.signal(signal.SIGALRM, on_alarm)
    config = Config(publish_timeout=30, msg_timeout=1, max_attempts=0)
    producer = Producer([address], config=config)
    consumer = Consumer("events", "c", nsqd_tcp_addresses=[address], max_in_flight=20,
                        config=config)
    calls = [*(lambda call=call: call(producer) for call in CALLS.values()), producer.stats, take]
    others = start_threads(4, publish_on)
    while seen["raised"] < COUNT:
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, random.random() * 0.003 + 1e-6)
            repeat(random.choice(calls))
        except error as exc:
            assert str(exc) == "from a signal handler"
            seen["caught"] += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        is_armed = False
    over.set()
    for thread in others:
        thread.join(20)
        assert not thread.is_alive()
    assert seen["caught"] + seen["in a finalizer"] == seen["raised"], seen
    for _ in range(50):
        producer.publish("events", b"x", timeout=30)
    producer.publish_async("events", b"x").result(30)
    assert producer.flush(5) and len(list(zip(range(20), consumer.messages(timeout=5)))) == 20
    assert consumer.stop(5) and producer.close(5)
    assert not [each.name for each in threading.enumerate() if each.name.startswith("nsq-")]


@pytest.mark.parametrize("error", [Expired, TimeoutError, KeyboardInterrupt])
def test_an_exception_of_a_signal_handler_reaches_the_caller_at_any_moment(error, server):
    """Also in the middle of a system call; afterwards all works, and all ends."""
    assert in_child(lambda: interrupt_at_random(server.tcp_address, error)) == 0
