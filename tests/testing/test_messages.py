"""Messages to call a handler with, and the answers that they keep."""

from concurrent.futures import Future

import pytest

from nsqclient import (
    AlreadyRespondedError, BatchHandler, ConfigError, GiveUp, InvalidMessageError, Requeue, Retry,
    RetryTable,
)
from nsqclient.testing import RecordedMessage, handle, make_message


def test_a_made_message_is_a_message_with_values_of_its_own():
    message, other = make_message(b'{"a": 1}', 3, headers={"x": "y"}), make_message(b"x")
    assert (message.body, message.attempts, message.json()) == (b'{"a": 1}', 3, {"a": 1})
    assert message.id != other.id and len(message.id) == 16 and message.headers == {"x": "y"}
    assert 59 < message.time_left <= 60 and message.timestamp > 1_600_000_000 * 10**9
    assert message.nsqd_address == "127.0.0.1:4150" and other.headers == {}
    assert str(make_message(b"x", message_id=b"0123456789abcdef").id) == "0123456789abcdef"
    assert repr(other).startswith("<Message ")


def test_a_message_keeps_its_answers():
    finished, requeued = make_message(b"x"), make_message(b"x")
    assert not (finished.finished or finished.requeued or finished.touched or finished.error)
    finished.touch()
    finished.keep_alive()
    finished.finish()
    requeued.requeue(30, backoff=False)
    assert finished.finished and finished.touched == 2 and finished.has_responded
    assert requeued.requeued is not None and not requeued.finished
    assert (requeued.requeued.delay, requeued.requeued.backoff) == (30.0, False)
    for call in (finished.finish, finished.requeue, finished.touch, requeued.finish):
        with pytest.raises(AlreadyRespondedError):
            call()


@pytest.mark.parametrize("arguments, error", [
    ({"body": b""}, InvalidMessageError),
    ({"body": b"x", "attempts": -1}, ConfigError),
    ({"body": b"x", "message_id": b"1"}, ConfigError),
    ({"body": b"x", "message_id": "0123456789abcdef"}, ConfigError),
    ({"body": b"x", "time_left": "x"}, ConfigError),
    ({"body": b"x", "timestamp": -1}, ConfigError),
    ({"body": b"x", "headers": "x"}, ConfigError),
])
def test_what_no_message_has_is_refused(arguments, error):
    with pytest.raises(error):
        make_message(**arguments)


def fail(message):
    raise ValueError("x")


def ask_again(message):
    raise Requeue(5, backoff=False)


def give_up(message):
    raise GiveUp("no such customer")


def leave_open(message):
    message.enable_async()


async def coroutine(message):
    """Never run."""


def test_a_handler_is_called_as_a_consumer_calls_it():
    def outcome(handler):
        message = make_message(b"x")
        handle(handler, message)
        delay = None if message.requeued is None else message.requeued.delay
        return message.finished, message.requeued is not None, delay, type(message.error)

    nothing = type(None)
    assert outcome(lambda message: None) == (True, False, None, nothing)
    assert outcome(fail) == (False, True, None, ValueError)
    assert outcome(ask_again) == (False, True, 5.0, nothing)
    assert outcome(give_up) == (True, False, None, GiveUp)
    assert outcome(lambda message: GiveUp("no such customer")) == (True, False, None, GiveUp)
    assert outcome(leave_open) == (False, False, None, nothing)
    assert outcome(coroutine) == (False, True, None, TypeError)
    assert outcome(lambda message: Future()) == (False, True, None, TypeError)
    assert outcome(RecordedMessage.finish) == (True, False, None, nothing)
    assert outcome(lambda message: [message.finish(), 1 / 0])[0] is True


def test_a_message_is_given_up_as_by_a_consumer():
    message, last, table = make_message(b"x"), make_message(b"x", attempts=5), make_message(b"x")
    handle(give_up, message)
    handle(fail, last)
    handle(fail, table, retry=RetryTable({ValueError: GiveUp("bad")}))
    assert [each.given_up.reason for each in (message, last, table)] == [
        "no such customer", "ValueError: x, after 5 attempts", "bad"]
    assert all(each.finished and not each.requeued for each in (message, last, table))
    assert [type(each.error) for each in (message, last, table)] == [
        GiveUp, ValueError, ValueError]
    assert make_message(b"x").given_up is None


def test_a_retry_policy_decides_about_the_delay():
    single, one, two = make_message(b"x"), make_message(b"x", 1), make_message(b"x", 3)
    retry = Retry(base=10, factor=2, jitter=0)
    handle(fail, single, retry=retry, max_attempts=0)
    handle(BatchHandler(fail), one, two, retry=retry, max_attempts=2)
    assert single.requeued.delay == one.requeued.delay == 10
    assert two.requeued is None and two.given_up is not None


def test_a_batch_handler_gets_one_batch():
    sizes = []
    messages = [make_message(b"%d" % n) for n in range(5)]
    handler = BatchHandler(lambda batch: [sizes.append(len(batch)), *batch[:2]][1:], size=2)
    handle(handler, *messages)
    assert sizes == [5]
    assert [message.finished for message in messages] == [True, True, False, False, False]
    assert [message.requeued is not None for message in messages][2:] == [True] * 3
    for function, error in ((fail, ValueError), (ask_again, type(None))):
        message = make_message(b"x")
        handle(BatchHandler(function), message)
        assert message.requeued and type(message.error) is error
    handle(handler)
    assert sizes == [5]


def test_the_body_of_a_message_may_be_json():
    assert make_message(json={"id": 7}).json() == {"id": 7}
    for arguments in ({}, {"body": b"x", "json": 1}):
        with pytest.raises(InvalidMessageError, match="either body .* or json"):
            make_message(**arguments)
