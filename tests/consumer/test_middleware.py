"""Middleware: context managers around each call of a handler, in order."""

import contextlib

import pytest

from nsqclient import BatchHandler, ConfigError, Consumer, Requeue, TimeLimit
from nsqclient.consumer.middleware import check_middleware, with_middleware


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
    address = nsqd.tcp_address if nsqd else "127.0.0.1:1"
    return Consumer("t", "c", handler, nsqd_tcp_addresses=[address], **options)


def test_the_first_middleware_is_outermost(nsqd):
    seen = []
    nsqd.publish("t", b"x")
    with consumer(lambda message: seen.append(message.body), nsqd,
                  middleware=[recording("a", seen), recording("b", seen)]):
        nsqd.wait_until_empty("t", "c")
    assert seen == [("a in", "t", "c", 1), ("b in", "t", "c", 1), b"x", ("b out",), ("a out",)]


def raise_requeue(message):
    raise Requeue


@pytest.mark.parametrize("handler", [raise_requeue, lambda message: Requeue()])
def test_a_middleware_sees_a_requeue_that_is_raised_or_returned_as_raised(handler):
    """So that a transaction around the handler is rolled back."""
    seen = []
    layers = [recording("a", seen), recording("b", seen)]
    with pytest.raises(Requeue):
        with_middleware(handler, layers, "t", "c")("x")
    assert seen[2:] == [("b raised", "Requeue"), ("a raised", "Requeue")]


def test_a_middleware_may_suppress_an_exception_or_raise_before_the_handler_runs():
    """A message whose exception is suppressed counts as handled."""
    def handler(message):
        raise KeyError(message)

    @contextlib.contextmanager
    def failing(handling):
        raise Requeue
        yield

    assert with_middleware(
        handler, [lambda handling: contextlib.suppress(KeyError)], "t", "c")("x") is None
    with pytest.raises(Requeue):
        with_middleware(handler, [failing], "t", "c")("x")


def test_a_batch_is_one_handling(nsqd):
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
    with pytest.raises(ConfigError, match=words):
        consumer(print, middleware=middleware)


@pytest.mark.parametrize("handler, words", [(None, "with statement"), (coroutine, "async")])
def test_middleware_needs_a_handler_that_is_not_asynchronous(handler, words):
    """A class of context managers is a middleware."""
    with pytest.raises(ConfigError, match=words):
        consumer(handler, middleware=[contextlib.nullcontext])


def test_a_class_in_place_of_a_middleware_is_refused():
    with pytest.raises(ConfigError, match="TimeLimit is a class: give an object"):
        check_middleware([TimeLimit])
