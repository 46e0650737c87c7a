"""``Settings``: a web framework's configuration of NSQ; ``ProcessProducer``: its producer.

One mapping for every framework::

    NSQCLIENT = {
        "NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"],
        "LOOKUPD_HTTP_ADDRESSES": ["127.0.0.1:4161"],
        "OPTIONS": {"max_in_flight": 10},
        "PRODUCER": {"sticky": True},
        "MIDDLEWARE": ["shop.middleware.report_errors"],
    }

Independent of the framework.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqclient.config import OPTIONS, Config
from nsqclient.consumer.middleware import Middleware
from nsqclient.discovery import check_addresses
from nsqclient.errors import ConfigError
from nsqclient.producer.producer import Producer
from nsqclient.runtime.arguments import closest
from nsqclient.runtime.fork import register_for_fork
from nsqclient.runtime.lock import Lock
from nsqclient.secrets import secrets_of, with_secrets
from nsqclient.worker.loading import load_object

logger: logging.Logger = logging.getLogger("nsqclient.producer")

_KEYS = ("NSQD_TCP_ADDRESSES", "LOOKUPD_HTTP_ADDRESSES", "OPTIONS", "PRODUCER", "MIDDLEWARE")
#: Arguments of a Producer that the settings may give.
_PRODUCER_KEYS = (
    "retry_unknown", "sticky", "max_pending", "max_pending_bytes", "on_full", "linger",
)
#: Seconds that the end of the process waits for publishes without an outcome.
_EXIT_TIMEOUT = 5.0


class Problem(NamedTuple):
    """One error in the settings."""

    code: str  #: "shape", "key", "addresses", "options", "producer" or "middleware"
    text: str
    hint: str  #: what to do


@dataclass(frozen=True)
class Settings:
    """Checked settings. Immutable."""

    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    config: Config = field(default_factory=Config)
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    middleware: tuple[Any, ...] = ()  #: paths or functions, around each handler of a worker

    @classmethod
    def read(cls, mapping: object) -> Settings:
        """Check a mapping and return its settings.

        Raises:
            ConfigError: the first problem of :func:`find_problems`.
        """
        problems = find_problems(mapping)
        if problems:
            raise ConfigError(f"{problems[0].text}: {problems[0].hint}")
        assert isinstance(mapping, Mapping)
        nsqds, lookupds = _addresses(mapping)
        return cls(
            tuple(nsqds), tuple(lookupds), _config(mapping.get("OPTIONS", {})),
            dict(mapping.get("PRODUCER", {})), tuple(mapping.get("MIDDLEWARE", ())),
        )

    def make_producer(self) -> Producer:
        """Create a Producer; it opens no socket yet.

        It publishes to ``NSQD_TCP_ADDRESSES``, and without any to nsqds that nsqlookupds list:
        usually an application publishes to an nsqd beside it.
        """
        nsqds = self.nsqd_tcp_addresses
        return Producer(
            nsqds, lookupd_http_addresses=() if nsqds else self.lookupd_http_addresses,
            config=self.config, **self.producer_options,
        )

    def load_middleware(self) -> list[Middleware]:
        """Import the middleware that is given by its path; return all of it.

        Raises:
            ConfigError: a path leads to nothing, or a module does not import.
        """
        return [
            load_object(each, "middleware") if isinstance(each, str) else each
            for each in self.middleware
        ]

    def consumer_addresses(self) -> dict[str, Any]:
        """Return the addresses for a Consumer: nsqlookupds, or without any the nsqds.

        Not both: an nsqd that is also listed under another name would get two connections.
        """
        if self.lookupd_http_addresses:
            return {"lookupd_http_addresses": self.lookupd_http_addresses}
        return {"nsqd_tcp_addresses": self.nsqd_tcp_addresses}


def find_problems(mapping: object) -> list[Problem]:
    """Return everything that is wrong with a mapping of settings. No network."""
    if not isinstance(mapping, Mapping):
        return [Problem(
            "shape", f"NSQCLIENT must be a dict, not {type(mapping).__name__}",
            'write NSQCLIENT = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}',
        )]
    problems = [
        Problem("key", f"NSQCLIENT has an unknown key {key!r}", _suggest(str(key), _KEYS))
        for key in mapping if key not in _KEYS
    ]
    try:
        _addresses(mapping)
    except ConfigError as exc:
        problems.append(Problem(
            "addresses", f"NSQCLIENT: {exc}",
            "NSQD_TCP_ADDRESSES and LOOKUPD_HTTP_ADDRESSES are lists of host:port",
        ))
    return [
        *problems, *_option_problems(mapping.get("OPTIONS", {})),
        *_producer_problems(mapping.get("PRODUCER", {})),
        *_middleware_problems(mapping.get("MIDDLEWARE", ())),
    ]


def _addresses(mapping: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    return check_addresses(
        mapping.get("NSQD_TCP_ADDRESSES", ()), mapping.get("LOOKUPD_HTTP_ADDRESSES", ())
    )


def _option_problems(options: object) -> list[Problem]:
    if not isinstance(options, Mapping):
        return [Problem("options", 'NSQCLIENT["OPTIONS"] must be a dict',
                        'write {"max_in_flight": 10}')]
    problems = [
        Problem("options", f'NSQCLIENT["OPTIONS"] has an unknown option {name!r}',
                _suggest(str(name), OPTIONS))
        for name in options if name not in OPTIONS
    ]
    if not problems:
        try:
            _config(options)
        except ConfigError as exc:
            problems.append(Problem("options", f'NSQCLIENT["OPTIONS"]: {exc}',
                                    "the page of options has types and ranges"))
    return problems


def _producer_problems(options: object) -> list[Problem]:
    if not isinstance(options, Mapping):
        return [Problem("producer", 'NSQCLIENT["PRODUCER"] must be a dict',
                        'write {"sticky": True}')]
    problems = [
        Problem("producer", f'NSQCLIENT["PRODUCER"] has an unknown argument {name!r}',
                _suggest(str(name), _PRODUCER_KEYS))
        for name in options if name not in _PRODUCER_KEYS
    ]
    if not problems:
        try:
            # Before its first publish a Producer has no socket and no thread.
            Producer(["127.0.0.1:4150"], **options).close(0)
        except ConfigError as exc:
            problems.append(Problem("producer", f'NSQCLIENT["PRODUCER"]: {exc}',
                                    "see the arguments of Producer"))
    return problems


def _middleware_problems(middleware: object) -> list[Problem]:
    """Return what is wrong with the list; what its paths lead to is seen by the worker."""
    if isinstance(middleware, (list, tuple)) and all(
        isinstance(each, str) or callable(each) for each in middleware
    ):
        return []
    return [Problem("middleware", 'NSQCLIENT["MIDDLEWARE"] must be a list of dotted paths',
                    'write ["shop.middleware.report_errors"]')]


def _config(options: Mapping[str, Any]) -> Config:
    """Return the Config. Values may be text, as in environment variables."""
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

    Life: created (without a producer), ``get()``, ``close()``; ``get()`` after ``close()`` creates
    a new producer. At the end of the process it is closed, for 5 s at most. A forked child
    (gunicorn with ``--preload``) has its own producer.
    Threads: any.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._lock = Lock()
        self._producer: Producer | None = None  # guarded by _lock
        register_for_fork(self)
        _all.add(self)

    def _reset_after_fork(self) -> None:
        """For the library: a thread of the parent may hold the lock."""
        # The producer itself resets in the child.
        self._lock = Lock()

    def get(self) -> Producer:
        """Return the producer; the first call creates it."""
        with self._lock:
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def close(self, timeout: float = _EXIT_TIMEOUT) -> bool:
        """Close the producer, if there is one; return whether every publish has an outcome.

        Blocks: at most ``timeout`` seconds.
        """
        with self._lock:
            producer, self._producer = self._producer, None
        return producer is None or producer.close(timeout)


_all: weakref.WeakSet[ProcessProducer] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    # After the request handlers: a web server's worker exits when they have ended.
    for holder in list(_all):
        if not holder.close(_EXIT_TIMEOUT):
            logger.error("the producer of this process did not close in %g s", _EXIT_TIMEOUT)
