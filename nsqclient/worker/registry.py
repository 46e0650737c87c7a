"""``HandlerRegistry``: the handler of each channel, and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from nsqclient.config import Config, OPTIONS, SharedOptions
from nsqclient.consumer.batch import BatchHandler
from nsqclient.consumer.middleware import Middleware, check_middleware
from nsqclient.partitioned.ordered import BlockedPolicy
from nsqclient.consumer.processor import Handler
from nsqclient.consumer.retry import RetryPolicy
from nsqclient.errors import ConfigError, NSQError
from nsqclient.message import Message
from nsqclient.protocol.partitioned.selection import HeaderFilter, StartPosition
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.runtime.arguments import check_function, closest
from nsqclient.runtime.lock import Lock

if TYPE_CHECKING:
    from typing_extensions import Unpack

H = TypeVar("H", bound=Handler)


class HandlerOptions(SharedOptions, total=False):
    """Further keyword arguments of ``@nsqclient.handler``, of the Config and Consumer."""

    desired_tag: str
    discovery_filter: Callable[[list[str]], Iterable[str]] | None
    header_filter: HeaderFilter | None
    on_backoff: Callable[[str, float], Any] | None
    on_blocked: BlockedPolicy | None
    on_connect: Callable[[str], Any] | None
    on_disconnect: Callable[[str], Any] | None
    on_error: Callable[[NSQError], Any] | None
    on_giving_up: Callable[[Message], Any]
    ordered: bool
    partitions: Iterable[int] | None
    retry: RetryPolicy | None
    start_at: StartPosition | Mapping[int, StartPosition] | None
    with_offsets: bool


_CONSUMER_ARGUMENTS = tuple(
    name for name in HandlerOptions.__annotations__ if name not in SharedOptions.__annotations__)


@dataclass(frozen=True)
class Registration:
    """A handler, its channel, and the options of its consumer. Immutable."""

    topic: str
    channel: str
    handler: Handler
    name: str  #: name of the handler, for logs and errors
    workers: int = 1
    max_in_flight: int | None = None
    middleware: tuple[Middleware, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)  #: others of the Consumer
    options: Mapping[str, Any] = field(default_factory=dict)  #: options of its Config

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.channel}"

    def settings(self) -> dict[str, Any]:
        given: dict[str, Any] = {"workers": self.workers, "max_in_flight": self.max_in_flight,
                                 "middleware": self.middleware, **self.arguments, **self.options}
        return {name: value for name, value in given.items() if value not in (None, ())}


def register(
    topic: str,
    channel: str,
    handler: Handler,
    *,
    name: str = "",
    workers: int = 1,
    max_in_flight: int | None = None,
    middleware: Iterable[Middleware] = (),
    **options: Any,
) -> Registration:
    """Return a checked Registration. Arguments and errors: as :meth:`HandlerRegistry.handler`."""
    shown = name or name_of(handler)
    check_topic(topic)
    check_channel(channel)
    check_function(handler, f"handler {shown}", "message")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ConfigError(
            f"handler {shown}: workers must be a whole number from 1, not {workers!r}")
    arguments = {key: options.pop(key) for key in _CONSUMER_ARGUMENTS if key in options}
    for key in options:
        if key not in OPTIONS:
            known = [*OPTIONS, *_CONSUMER_ARGUMENTS, "workers", "max_in_flight", "middleware"]
            close = closest(key, known)
            hint = f"; did you mean {close}?" if close else ""
            raise ConfigError(f"handler {shown}: unknown option {key!r}{hint}")
    given = options if max_in_flight is None else {**options, "max_in_flight": max_in_flight}
    try:
        Config().replace(**given)
        around = check_middleware(middleware)
    except ConfigError as exc:
        raise ConfigError(f"handler {shown}: {exc}") from exc
    return Registration(
        topic, channel, handler, shown, workers, max_in_flight, around, arguments, options)


def name_of(handler: object) -> str:
    function = handler.function if isinstance(handler, BatchHandler) else handler
    function = getattr(function, "func", function)  # a functools.partial
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str):
        return f"{module}.{qualname}"
    return f"{type(handler).__module__}.{type(handler).__qualname__}"


class HandlerRegistry:
    """The handlers of a process or an application, in order. Threads: any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: dict[tuple[str, str], Registration] = {}  # guarded by _lock

    def handler(
        self,
        topic: str,
        channel: str = "",
        *,
        workers: int = 1,
        max_in_flight: int | None = None,
        middleware: Iterable[Middleware] = (),
        **options: Unpack[HandlerOptions],
    ) -> Callable[[H], H]:
        """Register a function, or a BatchHandler, for a channel; a decorator.

        The function itself is returned, so a test can call it. Nothing is connected.

        Args:
            topic, channel: the names of the channel that it handles.
            workers: threads that run it.
            max_in_flight: maximum number of messages in flight; None: the value of the worker, or
                one for each thread if that is not set.
            middleware: context managers around each call, inside the middleware of the worker.
            options: options of :class:`Config` by their names (``max_attempts=3``), and the
                arguments ``retry``, ``ordered``, ``on_blocked``, ``on_giving_up``, the other
                callbacks of :class:`Consumer`, and those for partitioned NSQ.

        Raises:
            InvalidTopicError, InvalidChannelError: a name is invalid.
            ConfigError: the function cannot handle messages, an option is unknown or out of
                range, or the channel has a handler already.
        """

        if callable(topic) or not channel:  # also of a bare @handler
            raise ConfigError(
                "handler needs a topic and a channel: write @nsqclient.handler(\"topic\","
                ' "channel") before the function')

        def decorate(function: H) -> H:
            self.add(register(
                topic, channel, function, workers=workers, max_in_flight=max_in_flight,
                middleware=middleware, **options))
            return function

        return decorate

    def add(self, registration: Registration) -> None:
        """Add a Registration. ConfigError if the channel has another handler.

        A function that the same code defines again, as in an application factory, replaces the
        first.
        """
        key = registration.topic, registration.channel
        with self._lock:
            former = self._entries.get(key)
            is_same = former is not None and former.name == registration.name
            if former is None or is_same and "<locals>" in registration.name:
                self._entries[key] = registration
                return
        if former is not registration:
            raise ConfigError(
                f"{registration.place} has two handlers, {former.name} and {registration.name}:"
                " keep one of them, or give the other a channel of its own")

    def __iter__(self) -> Iterator[Registration]:
        with self._lock:
            return iter(list(self._entries.values()))

    def remove(self, topic: str, channel: str) -> None:
        """Remove the handler of a channel, if any; for tests."""
        with self._lock:
            self._entries.pop((topic, channel), None)


registry: HandlerRegistry = HandlerRegistry()


handler = registry.handler
