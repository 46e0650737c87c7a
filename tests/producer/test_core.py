"""The parts of a producer: its health, and the end of one that was dropped without close()."""

import gc
import logging
import threading

import pytest

from nsqclient import Config, Producer
from nsqclient.runtime.deadline import Deadline
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


def threads_of_producers():
    return [thread.name for thread in threading.enumerate()
            if thread.name.startswith(("nsq-timer", "nsq-publisher", "nsq-dialer", "nsq-reader"))]


def test_a_producer_is_healthy_before_its_first_publish_and_while_it_is_connected(nsqd):
    with Producer([nsqd.tcp_address]) as producer:
        assert producer.healthy() and "nothing was published" in producer.healthy().reason
        producer.publish("t", b"x")
        assert producer.healthy() and producer.healthy().reason == "connected"
    assert not producer.healthy() and producer.healthy().reason == "closed"


def test_health_names_the_nsqds_that_are_not_connected(nsqd):
    address = f"127.0.0.1:{free_port()}"
    with Producer([nsqd.tcp_address, address]) as producer:
        producer.publish("t", b"x")
        wait_until(lambda: f"not connected to {address} (" in producer.healthy().reason)
        assert producer.healthy()
    with Producer([address], config=Config(publish_timeout=0.2)) as producer:
        with pytest.raises(Exception, match="refused"):
            producer.publish("t", b"x")
        assert not producer.healthy() and "refused" in producer.healthy().reason


def test_health_names_a_thread_that_has_ended(nsqd, monkeypatch):
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish("t", b"x")
        with monkeypatch.context() as context:
            context.setattr(producer._core.nodes.timer._thread, "is_alive", lambda: False)
            assert not producer.healthy() and "nsq-timer" in producer.healthy().reason


def test_a_producer_that_is_dropped_sends_what_is_pending_and_ends_its_threads(nsqd):
    """The program has forgotten close(), and keeps no reference."""
    producer = Producer([nsqd.tcp_address])
    futures = [producer.publish_async("t", b"x") for _ in range(100)]
    producer.publish("t", b"x")
    del producer
    gc.collect()
    assert all(future.result(30) is None for future in futures)
    del futures
    wait_until(lambda: threads_of_producers() == [])


def test_a_producer_without_threads_may_be_dropped(nsqd):
    for _ in range(10):
        Producer([nsqd.tcp_address])
    gc.collect()
    assert threads_of_producers() == []


def test_the_end_of_the_process_says_what_has_no_outcome(caplog):
    caplog.set_level(logging.ERROR, "nsqclient.producer")
    with Producer([f"127.0.0.1:{free_port()}"], config=Config(publish_timeout=0.5)) as producer:
        future = producer.publish_async("events", b"x")
        producer._core.publisher._running.add(object())
        producer._core.flush_at_exit(Deadline(0.0))
        producer._core.publisher._running.clear()
        assert future.exception(30) is not None
    assert "no outcome at exit: 1 publish to events" in caplog.text
    assert "no outcome at exit: 1 publish call in other threads" in caplog.text
