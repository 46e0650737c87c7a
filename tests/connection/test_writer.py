"""The writer over a socket that takes nothing: which thread waits, and how long."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nsqclient.connection.writer import SocketWriter, BackgroundFlusher
from nsqclient.errors import WriteTimeoutError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport


class Core:
    """A protocol core that has a lot to say."""

    def __init__(self, size):
        self.data = b"x" * size

    def data_to_send(self):
        data, self.data = self.data, b""
        return data

    def has_data_to_send(self):
        return bool(self.data)


@pytest.fixture
def full():
    """An outbox with more to send than its socket takes, as the peer does not read."""
    ours, theirs = socket.socketpair()
    outbox = SocketWriter(Core(10_000_000), threading.Lock(), write_timeout=0.5)
    outbox.attach(Transport(ours, "peer"))
    yield outbox
    ours.close()
    theirs.close()


def test_flush_without_waiting_says_what_was_left(full):
    """Nothing waits; after False the caller writes the rest later."""
    assert full.flush(wait=False) is False


def test_flush_gives_up_after_the_write_timeout(full):
    """A peer that takes nothing for write_timeout is of no use any more."""
    with pytest.raises(WriteTimeoutError, match="0.5 s"):
        full.flush(wait=True)


def test_drain_keeps_its_time(full):
    """At the end a deaf peer costs what was asked for, not write_timeout more."""
    def seconds() -> float:
        began = time.monotonic()
        assert full.drain(0.05) is False
        return time.monotonic() - began

    assert any(seconds() < 0.45 for _ in range(20))  # a machine may be busy


@pytest.fixture
def rest_writer():
    """A BackgroundFlusher, its outbox with more than the socket takes, and the other end."""
    ours, theirs = socket.socketpair()
    transport = Transport(ours, "peer")
    outbox = SocketWriter(Core(3_000_000), threading.Lock(), write_timeout=5)
    outbox.attach(transport)
    lost = []
    writer = BackgroundFlusher(outbox, lost.append, "peer")
    yield writer, outbox, theirs, lost
    transport.shutdown()
    assert writer.join(Deadline(10))
    ours.close()
    theirs.close()


def test_what_a_sender_leaves_is_written_as_soon_as_it_can_be(rest_writer):
    """No other sender is needed, and what is left later goes out too."""
    writer, outbox, theirs, _ = rest_writer
    assert not outbox.flush(wait=True, until=0.0)
    writer.wake()
    writer.wake()
    outbox._core.data += b"y" * 5
    received = 0
    while received < 3_000_005:
        received += len(theirs.recv(1_000_000))
    assert writer.join(Deadline(10))


def test_the_rest_of_a_lost_connection(rest_writer):
    """The connection hears that it was lost."""
    writer, outbox, theirs, lost = rest_writer
    assert not outbox.flush(wait=True, until=0.0)
    theirs.close()
    writer.wake()
    assert writer.join(Deadline(10)) and lost


def test_without_a_thread_the_rest_waits_for_the_next_sender(rest_writer, monkeypatch):
    """No error, as the publish may still be answered in time."""
    writer, outbox, _, lost = rest_writer

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert not outbox.flush(wait=True, until=0.0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    writer.wake()
    assert writer.join(Deadline(0)) and not lost and outbox.has_rest()


def test_a_write_that_was_interrupted_does_not_keep_the_socket_open(monkeypatch):
    """The lock of a thread that Ctrl-C has stopped stays taken, and the end does not hang."""
    monkeypatch.setattr("nsqclient.connection.writer._LAST_WRITE", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outbox = SocketWriter(Core(10), threading.Lock(), write_timeout=5)
        outbox.attach(Transport(ours, "peer"))
        assert outbox._write_lock.acquire(blocking=False)
        assert outbox.flush(wait=True)  # left to the other thread
        outbox.close()
        assert ours.fileno() == -1
