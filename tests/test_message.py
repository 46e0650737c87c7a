"""Messages: what they carry, and how they pass answers on."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from nsqclient import message as module
from nsqclient.errors import ConfigError
from nsqclient.message import Message, Requeue


class Recorder:
    """A Responder that writes down what it is asked for."""

    address = "nsqd:4150"

    def __init__(self):
        self.calls = []

    def finish(self, message):
        self.calls.append(("finish", message))

    def requeue(self, message, delay, backoff):
        self.calls.append(("requeue", message, delay, backoff))

    def touch(self, message):
        self.calls.append(("touch", message))

    def keep_alive(self, message):
        self.calls.append(("keep_alive", message))


@pytest.fixture
def recorder():
    """Whom the message answers to."""
    return Recorder()


@pytest.fixture
def message(recorder):
    """A message as it was delivered."""
    return Message(b"body", b"0123456789abcdef", 3, 1_700_000_000, 100.0, 160.0, recorder)


def test_what_it_carries(message):
    """A message shows all that nsqd said of it."""
    assert (message.body, message.id, message.attempts) == (b"body", b"0123456789abcdef", 3)
    assert (message.timestamp, message.received, message.deadline) == (1_700_000_000, 100.0, 160.0)
    assert message.nsqd_address == "nsqd:4150"
    assert (message.has_responded, message.is_async) == (False, False)


def test_repr(message):
    """A log line shows which message it is, and not its body."""
    assert repr(message) == "<Message 0123456789abcdef attempts=3 4 bytes from nsqd:4150>"


@pytest.mark.parametrize("name", ["finish", "touch", "keep_alive"])
def test_answers(message, recorder, name):
    """Answers go to the connection that the message came from."""
    getattr(message, name)()
    assert recorder.calls == [(name, message)]


@pytest.mark.parametrize("arguments, delay, backoff", [
    ({}, None, True),
    ({"delay": 0}, 0.0, True),
    ({"delay": 1.5, "backoff": False}, 1.5, False),
    ({"delay": timedelta(minutes=1)}, 60.0, True),
])
def test_requeue(message, recorder, arguments, delay, backoff):
    """Requeue passes seconds on, and None where the delay is to be the automatic one."""
    message.requeue(**arguments)
    assert recorder.calls == [("requeue", message, delay, backoff)]
    raised = Requeue(**arguments)
    assert (raised.delay, raised.backoff) == (delay, backoff)


@pytest.mark.parametrize("delay", [-1, -0.001, timedelta(seconds=-1), "1", True, float("nan"),
                                   float("inf")])
def test_bad_delay(message, recorder, delay):
    """A delay that makes no sense is refused before anything is answered."""
    with pytest.raises(ConfigError, match="^requeue delay "):
        message.requeue(delay)
    with pytest.raises(ConfigError, match="^requeue delay "):
        Requeue(delay)
    assert recorder.calls == []


def test_requeue_is_no_error():
    """What a handler raises on purpose is a plain exception, and survives pickling."""
    copy = pickle.loads(pickle.dumps(Requeue(2, backoff=False)))
    assert (copy.delay, copy.backoff) == (2.0, False)


@pytest.mark.parametrize("now, left", [(100.0, 60.0), (160.0, 0.0), (161.5, -1.5)])
def test_time_left(message, monkeypatch, now, left):
    """Time runs out at the deadline, and is negative after it."""
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    assert message.time_left == left


def test_enable_async(message, recorder):
    """The answer is left to the user; nothing is sent."""
    message.enable_async()
    assert message.is_async
    assert recorder.calls == []


def test_no_stray_attributes(message):
    """A message has the attributes it has; a misspelled one is an error."""
    with pytest.raises(AttributeError):
        message.bdy = b"x"
