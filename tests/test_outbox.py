"""The outbox over a socket that takes nothing: who waits, and how long."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nsqclient.errors import WriteTimeoutError
from nsqclient.outbox import Outbox
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
    outbox = Outbox(Core(10_000_000), threading.Lock(), write_timeout=0.5)
    outbox.attach(Transport(ours, "peer"))
    yield outbox
    ours.close()
    theirs.close()


def test_flush_without_waiting_says_what_was_left(full):
    """Nobody waits; False tells the caller to see to the rest."""
    assert full.flush(wait=False) is False


def test_flush_gives_up_after_the_write_timeout(full):
    """A peer that takes nothing for write_timeout is of no use any more."""
    with pytest.raises(WriteTimeoutError, match="0.5 s"):
        full.flush(wait=True)


def test_drain_keeps_its_time(full):
    """At the end a deaf peer costs what was asked for, not write_timeout more."""
    began = time.monotonic()
    assert full.drain(0.05) is False
    assert time.monotonic() - began < 0.45
