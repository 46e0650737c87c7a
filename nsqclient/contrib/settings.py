"""``Settings``: the configuration in a web framework. ``ProcessProducer``: its producer.

One mapping for every framework::

    NSQCLIENT = {
        "NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"],
        "LOOKUPD_HTTP_ADDRESSES": ["127.0.0.1:4161"],
        "OPTIONS": {"max_in_flight": 10},
        "PRODUCER": {"sticky": True},
        "MIDDLEWARE": ["shop.middleware.report_errors"],
    }
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nsqclient.config import OPTIONS, Config
from nsqclient.consumer.middleware import Middleware
from nsqclient.discovery import check_addresses
from nsqclient.errors import ConfigError
from nsqclient.partitioned.producer import Producer
from nsqclient.runtime.arguments import closest
from nsqclient.runtime.forking import check_process, register_for_fork
from nsqclient.runtime.lock import Lock
from nsqclient.secrets import secrets_of, with_secrets
from nsqclient.worker.loading import load_object

_KEYS = ("NSQD_TCP_ADDRESSES", "LOOKUPD_HTTP_ADDRESSES", "OPTIONS", "PRODUCER", "MIDDLEWARE")
#: Arguments of a Producer that the settings may give.
_PRODUCER_KEYS = (
    "retry_unknown", "sticky", "max_pending", "max_pending_bytes", "on_full", "linger",
)


@dataclass(frozen=True)
class Settings:
    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    config: Config = field(default_factory=Config)
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    middleware: tuple[Any, ...] = ()  #: paths or functions, around each handler of a worker

    @classmethod
    def read(cls, mapping: object) -> Settings:
        """Check the setting NSQCLIENT. Raises ConfigError."""
        if not isinstance(mapping, Mapping):
            raise ConfigError("NSQCLIENT is missing or not a dict:"
                              ' write NSQCLIENT = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}')
        _check_names("NSQCLIENT", mapping, _KEYS)
        options, producer, middleware = (
            mapping.get("OPTIONS", {}), mapping.get("PRODUCER", {}), mapping.get("MIDDLEWARE", ()))
        _check_names('NSQCLIENT["OPTIONS"]', options, OPTIONS)
        _check_names('NSQCLIENT["PRODUCER"]', producer, _PRODUCER_KEYS)
        if not isinstance(middleware, (list, tuple)) or not all(
            isinstance(each, str) or callable(each) for each in middleware
        ):  # only the worker imports the paths
            raise ConfigError('NSQCLIENT["MIDDLEWARE"] must be a list of dotted paths:'
                              ' write ["shop.middleware.report_errors"]')
        try:
            nsqds, lookupds = check_addresses(
                mapping.get("NSQD_TCP_ADDRESSES", ()), mapping.get("LOOKUPD_HTTP_ADDRESSES", ()))
            config = _config(options)
            # A Producer opens sockets and starts threads only at its first publish.
            Producer(["127.0.0.1:4150"], **producer).close(0)
        except ConfigError as exc:
            raise ConfigError(f"NSQCLIENT: {exc}") from exc
        return cls(tuple(nsqds), tuple(lookupds), config, dict(producer), tuple(middleware))

    def make_producer(self) -> Producer:
        """Create a Producer, which opens no socket yet.

        It publishes to ``NSQD_TCP_ADDRESSES``, usually an nsqd on the same host. If none are given,
        it publishes to the nsqds that nsqlookupds list.
        """
        nsqds = self.nsqd_tcp_addresses
        return Producer(
            nsqds, lookupd_http_addresses=() if nsqds else self.lookupd_http_addresses,
            config=self.config, **self.producer_options,
        )

    def load_middleware(self) -> list[Middleware]:
        """Import the middleware that is given by its path; return all of it. Raises ConfigError."""
        return [
            load_object(each, "middleware") if isinstance(each, str) else each
            for each in self.middleware
        ]

    def consumer_addresses(self) -> dict[str, Any]:
        """Return the address arguments of a Consumer: the nsqlookupds, or if none, the nsqds.

        Not both, because an nsqd that nsqlookupd lists under another name would get two
        connections.
        """
        if self.lookupd_http_addresses:
            return {"lookupd_http_addresses": self.lookupd_http_addresses}
        return {"nsqd_tcp_addresses": self.nsqd_tcp_addresses}


def _check_names(place: str, given: object, known: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place} must be a dict, not {type(given).__name__}")
    for name in given:
        if name not in known:
            raise ConfigError(f"{place} has an unknown key {name!r}: {_suggest(str(name), known)}")


def _config(options: Mapping[str, Any]) -> Config:
    """Make a Config. Options may be text, as in environment variables."""
    options = with_secrets(options, secrets_of(os.environ))
    texts = {
        name: value for name, value in options.items()
        if isinstance(value, str) and OPTIONS[name].kind not in ("str", "strategy")
    }
    values = {name: value for name, value in options.items() if name not in texts}
    return Config.from_strings(texts).replace(**values)


def _suggest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    places = {"OPTIONS": OPTIONS, "PRODUCER": _PRODUCER_KEYS}
    for place, others in places.items():
        if name.lower() in others:
            return f'it belongs into "{place}": {{"{name.lower()}": ...}}'
    close = closest(name, names) or closest(name.upper(), names)
    if close:
        return f"did you mean {close}?"
    return f"known are {', '.join(names)}" if len(names) < 10 else "see the page of options"


class ProcessProducer:
    """Holds one Producer for each process.

    Args:
        make: creates the Producer; called once in a process, by the first ``get()``.

    Lifecycle: created (without a producer), ``get()``, ``close()``; ``get()`` after ``close()``
    creates a new producer. A forked child (gunicorn with ``--preload``) has its own producer.
    Threads: any.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._lock = Lock()
        self._producer: Producer | None = None  # guarded by _lock
        register_for_fork(self)

    def _reset_after_fork(self) -> None:
        # The producer itself resets in the child.
        self._lock = Lock()

    def get(self) -> Producer:
        check_process()
        with self._lock:
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def close(self, timeout: float = 5.0) -> bool:
        """Close the producer; return True if every publish has an outcome.

        Blocks: at most ``timeout`` seconds.
        """
        with self._lock:
            producer, self._producer = self._producer, None
        return producer is None or producer.close(timeout)
