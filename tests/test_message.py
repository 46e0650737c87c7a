"""Messages: their attributes, and how they pass responses on."""

import pickle
from datetime import timedelta

import pytest

from nsqclient import message as module
from nsqclient.errors import ConfigError
from nsqclient.message import Message, Requeue


class Recorder:
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
    return Recorder()


@pytest.fixture
def message(recorder):
    return Message(b"body", b"0123456789abcdef", 3, 1_700_000_000, 100.0, 160.0, recorder)


def test_a_message_has_the_values_of_nsqd(message):
    assert (message.body, message.id, message.attempts) == (b"body", b"0123456789abcdef", 3)
    assert (message.timestamp, message.received, message.deadline) == (1_700_000_000, 100.0, 160.0)
    assert message.nsqd_address == "nsqd:4150"
    assert (message.has_responded, message.is_async) == (False, False)
    assert repr(message) == "<Message 0123456789abcdef attempts=3 4 bytes from nsqd:4150>"


@pytest.mark.parametrize("name", ["finish", "touch", "keep_alive"])
def test_answers_go_to_the_connection_of_the_message(message, recorder, name):
    getattr(message, name)()
    assert recorder.calls == [(name, message)]


@pytest.mark.parametrize("arguments, delay, backoff", [
    ({}, None, True),
    ({"delay": 0}, 0.0, True),
    ({"delay": 1.5, "backoff": False}, 1.5, False),
    ({"delay": timedelta(minutes=1)}, 60.0, True),
])
def test_requeue_passes_seconds_or_none(message, recorder, arguments, delay, backoff):
    message.requeue(**arguments)
    assert recorder.calls == [("requeue", message, delay, backoff)]
    raised = pickle.loads(pickle.dumps(Requeue(**arguments)))
    assert (raised.delay, raised.backoff) == (delay, backoff)


@pytest.mark.parametrize("delay", [-0.001, "1", True, float("nan")])
def test_a_bad_delay_is_refused_before_anything_is_sent(message, recorder, delay):
    with pytest.raises(ConfigError, match="^requeue delay "):
        message.requeue(delay)
    with pytest.raises(ConfigError, match="^requeue delay "):
        Requeue(delay)
    assert recorder.calls == []


@pytest.mark.parametrize("now, left", [(100.0, 60.0), (160.0, 0.0), (161.5, -1.5)])
def test_time_left_runs_out_at_the_deadline(message, monkeypatch, now, left):
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    assert message.time_left == left


def test_the_id_prints_as_text_and_is_bytes_in_all_else(message):
    assert f"{message.id} {message.id!s:>20}" == "0123456789abcdef     0123456789abcdef"
    assert "%s" % message.id == str(message.id) == "0123456789abcdef"
    assert message.id == b"0123456789abcdef" and hash(message.id) == hash(b"0123456789abcdef")
    assert isinstance(message.id, bytes) and message.id.decode() == str(message.id)
    assert pickle.loads(pickle.dumps(message.id)) == message.id
    assert str(module.MessageId(b"\0/\xff")) == "002fff"


@pytest.mark.parametrize("body, value", [
    (b'{"a": [1, null]}', {"a": [1, None]}), (b"1", 1), ('"\u00e9"'.encode(), "\u00e9"),
])
def test_a_body_that_is_json_is_read(recorder, body, value):
    assert Message(body, b"0" * 16, 1, 1, 0.0, 9.0, recorder).json() == value


@pytest.mark.parametrize("body", [b"x", b"{", b"\xff", b'{"a": 1} 2', b"[" * 200_000])
def test_a_body_that_is_no_json_is_a_value_error(recorder, body):
    with pytest.raises(ValueError):
        Message(body, b"0" * 16, 1, 1, 0.0, 9.0, recorder).json()


def test_a_message_is_not_pickled(message):
    """In a process pool the answer would be lost."""
    with pytest.raises(TypeError, match="pass its body on; answer it in this process"):
        pickle.dumps(message)
