"""The writer over a socket that takes nothing: which thread waits, and how long."""

import socket
import threading
import time

import pytest

from nsqclient.connection.writer import SocketWriter
from nsqclient.runtime.transport import Transport


class Core:
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
    assert full.flush(wait=False) is False


def test_drain_keeps_its_time(full):
    def seconds() -> float:
        began = time.monotonic()
        assert full.drain(0.05) is False
        return time.monotonic() - began

    assert any(seconds() < 0.45 for _ in range(20))  # a machine may be busy


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
