"""Middleware: context managers around each call of a handler, in order."""

from __future__ import annotations

import contextlib

import pytest

from nsqclient import BatchHandler, ConfigError, Consumer, Requeue
from nsqclient.consumer.middleware import check_middleware, with_middleware
from tests.support.waiting import wait_until


def recording(name: str, seen: list):
    """A middleware that notes when it is entered and left, and with which exception."""
    @contextlib.contextmanager
    def middleware(handling):
        seen.append((f"{name} in", handling.topic, handling.channel, len(handling.messages)))
        try:
            yield
        except BaseException as exc:
            seen.append((f"{name} raised", type(exc).__name__))
            raise
        seen.append((f"{name} out",))

    return middleware


def consumer(handler, nsqd=None, **options):
    """A consumer of t/c."""
    address = nsqd.tcp_address if nsqd else "127.0.0.1:1"
    return Consumer("t", "c", handler, nsqd_tcp_addresses=[address], **options)


def test_the_first_middleware_is_outermost(nsqd):
    """They are entered in the order of the list, and left in the opposite order."""
    seen = []
    nsqd.publish("t", b"x")
    with consumer(lambda message: seen.append(message.body), nsqd,
                  middleware=[recording("a", seen), recording("b", seen)]):
        nsqd.wait_until_empty("t", "c")
    assert seen == [("a in", "t", "c", 1), ("b in", "t", "c", 1), b"x", ("b out",), ("a out",)]


def test_a_middleware_sees_what_the_handler_raises(nsqd):
    """The exception passes through all of them, and the message is requeued as the handler said."""
    seen, tries = [], []

    def handler(message):
        tries.append(message.attempts)
        if len(tries) == 1:
            raise Requeue(delay=0, backoff=False)

    nsqd.publish("t", b"x")
    with consumer(handler, nsqd, middleware=[recording("a", seen)]):
        nsqd.wait_until_empty("t", "c")
    assert seen[1] == ("a raised", "Requeue") and tries == [1, 2] and seen[-1] == ("a out",)


def test_a_middleware_sees_a_returned_requeue_as_raised(nsqd):
    """So that a transaction around the handler is rolled back."""
    seen, later = [], Requeue(delay=0, backoff=False)
    nsqd.publish("t", b"x")
    with consumer(lambda message: later if message.attempts < 3 else None, nsqd,
                  middleware=[recording("a", seen)]):
        nsqd.wait_until_empty("t", "c")
    assert [event[0] for event in seen] == ["a in", "a raised"] * 2 + ["a in", "a out"]


def test_a_middleware_that_fails_requeues_the_message(nsqd):
    """What ``__enter__`` raises counts as the handler's: the handler does not run."""
    tries, handled = [], []

    @contextlib.contextmanager
    def failing(handling):
        tries.append(1)
        if len(tries) == 1:
            raise Requeue(delay=0, backoff=False)
        yield

    nsqd.publish("t", b"x")
    with consumer(handled.append, nsqd, middleware=[failing]):
        nsqd.wait_until_empty("t", "c")
    assert len(tries) == 2 and len(handled) == 1


def test_a_middleware_that_suppresses_an_exception_finishes_the_message(nsqd):
    """As ``contextlib.suppress`` does around any block."""
    def handler(message):
        raise KeyError

    nsqd.publish("t", b"x")
    with consumer(handler, nsqd,
                  middleware=[lambda handling: contextlib.suppress(KeyError)]) as running:
        nsqd.wait_until_empty("t", "c")
        wait_until(lambda: running.stats().total.finished == 1)


def test_a_batch_is_one_handling(nsqd):
    """The middleware sees all messages of the batch at once; what is returned is kept."""
    seen = []
    batches = BatchHandler(lambda batch: batch, size=3, max_wait=5)
    nsqd.publish_many("t", [b"x"] * 3)
    with consumer(batches, nsqd, max_in_flight=3, middleware=[recording("a", seen)]):
        nsqd.wait_until_empty("t", "c")
    assert seen == [("a in", "t", "c", 3), ("a out",)]


def test_without_middleware_the_handler_is_called_as_it_is():
    """There is no wrapper, so a message costs no call more."""
    def handler(message):
        """Handles nothing."""

    batches = BatchHandler(print)
    assert with_middleware(handler, (), "t", "c") is handler
    assert with_middleware(batches, (), "t", "c") is batches
    assert consumer(handler)._handler is handler


def generator(handling):
    """A middleware whose decorator was forgotten."""
    yield


async def coroutine(handling):
    """An asynchronous middleware."""


@contextlib.asynccontextmanager
async def asynchronous(handling):
    """An asynchronous context manager."""
    yield


@pytest.mark.parametrize(("middleware", "words"), [
    ([generator], "contextlib.contextmanager"), ([coroutine], "write def"),
    ([asynchronous], "write def"), ([1], "not callable"), ("abc", "must be a list"),
    (print, "must be a list"), ([lambda: None], "cannot be called with"),
])
def test_what_is_no_middleware_is_refused_at_once(middleware, words):
    """The error says what to write instead."""
    with pytest.raises(ConfigError, match=words):
        consumer(print, middleware=middleware)


def test_a_class_of_context_managers_is_a_middleware():
    """An instance is made for each handling."""
    assert check_middleware([contextlib.nullcontext]) == (contextlib.nullcontext,)


def test_middleware_without_a_handler_is_refused():
    """A loop over ``messages()`` has a place for a with statement."""
    with pytest.raises(ConfigError, match="with statement"):
        consumer(None, middleware=[contextlib.nullcontext])


def test_middleware_does_not_hide_an_asynchronous_handler():
    """The handler is checked before it is wrapped."""
    with pytest.raises(ConfigError, match="async"):
        consumer(coroutine, middleware=[contextlib.nullcontext])
