"""Middleware: context managers around each call of a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, NamedTuple

from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.processor import Handler
from nsqclient.errors import ConfigError
from nsqclient.message import Message, raise_decision
from nsqclient.runtime.arguments import check_function


class Handling(NamedTuple):
    """One call of a handler, passed to each middleware. Immutable."""

    topic: str
    channel: str
    #: The messages that the handler gets: one, or those of a batch. Never empty.
    messages: Sequence[Message]
    is_batch: bool
    #: Returns True once the consumer stops. A middleware that waits should then stop waiting.
    is_stopping: Callable[[], bool] = lambda: False


#: Returns the context manager for one call.
Middleware = Callable[[Handling], AbstractContextManager[Any]]


def check_middleware(middleware: object) -> tuple[Middleware, ...]:
    """Return the middleware of a list, outermost first.

    Raises:
        ConfigError: not a list, or an element does not return a context manager.
    """
    if not isinstance(middleware, Iterable) or isinstance(middleware, (str, bytes)):
        raise ConfigError(f"middleware must be a list of functions, not {middleware!r:.80}")
    found = tuple(middleware)
    for each in found:
        inner = inspect.unwrap(each) if callable(each) else each
        name = getattr(each, "__qualname__", f"{each!r:.80}")
        if isinstance(each, type) and not hasattr(each, "__enter__"):
            raise ConfigError(f"middleware: {name} is a class: give an object, {name}(...)")
        if inspect.isgeneratorfunction(each):
            raise ConfigError(
                f"middleware: {name} is a generator: decorate it with contextlib.contextmanager")
        if inspect.isasyncgenfunction(inner) or inspect.iscoroutinefunction(inner):
            raise ConfigError(
                f"middleware: {name} is asynchronous, and handlers run in threads: write def, and"
                " contextlib.contextmanager")
        check_function(each, "middleware", "handling", may_be_class=True)
    return found


def with_middleware(
    handler: Handler, middleware: Sequence[Middleware], topic: str, channel: str,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Handler:
    """Return a handler, or a copy of a BatchHandler, that runs inside of all ``middleware``.

    Raises:
        ConfigError: ``handler`` cannot be called with a message, or is an async function.
    """
    if not middleware:
        return handler
    is_batch = isinstance(handler, BatchHandler)

    def wrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(argument: Any, handling: Handling, around: Sequence[Middleware]) -> Any:
            if not around:
                result = function(argument)
                raise_decision(result)  # raised in the middleware, which may roll back
                return result
            with around[0](handling):
                return call(argument, handling, around[1:])

        @wraps(function, updated=())
        def run(argument: Any) -> Any:
            messages = argument if is_batch else (argument,)
            handling = Handling(topic, channel, messages, is_batch, is_stopping)
            return call(argument, handling, middleware)

        return run

    if isinstance(handler, BatchHandler):
        return handler.wrapped(wrap)
    check_function(handler, "handler", "message")  # the wrapper would hide an async function
    return wrap(handler)
