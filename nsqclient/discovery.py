"""Asks nsqlookupds which nsqds have a topic. Source: client guide, "Discovery"."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from nsqclient.config import Config
from nsqclient.display import without_password
from nsqclient.errors import (
    ConfigError, DiscoveryError, NSQHTTPError, NSQHTTPStatusError, TLSError, as_cause,
)
from nsqclient.hints import LOOKUPD_HTTP
from nsqclient.http.models import Producer
from nsqclient.http.urls import lookup_url, split_address
from nsqclient.log_records import log_fields
from nsqclient.runtime.addresses import parse_address, pieces_of
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import LineLimit

if TYPE_CHECKING:
    from nsqclient.http.nsqlookupd import NsqlookupdHTTP

logger: logging.Logger = logging.getLogger("nsqclient.discovery")
_unusable = LineLimit()

A = TypeVar("A")

#: Maximum size of an answer in bytes: enough for some 50,000 nsqds.
_MAX_ANSWER_SIZE = 16 * 1024 * 1024


class Addresses(Protocol):
    """A list, tuple or set of addresses. For type checkers, a str does not match."""

    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, value: object, /) -> bool: ...


def check_addresses(nsqds: Addresses, lookupds: Addresses) -> tuple[list[str], list[str]]:
    """Check two lists of addresses and return them without duplicates. Raises ConfigError."""
    nsqds = check_list(nsqds, "nsqd_tcp_addresses")
    lookupds = check_list(lookupds, "lookupd_http_addresses")
    if not nsqds and not lookupds:
        raise ConfigError("give nsqd_tcp_addresses or lookupd_http_addresses")
    for address in nsqds:
        parse_address(address, "nsqd_tcp_address")
    for address in lookupds:
        lookup_url(address)
    return list(dict.fromkeys(nsqds)), list(dict.fromkeys(lookupds))


def check_list(value: object, name: str) -> list[str]:
    """Return addresses as a list. Raises ConfigError for a plain string."""
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode(errors="replace")
        raise ConfigError(f"{name} must be a list of addresses: write {pieces_of(text)}")
    if not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a list of addresses, not {value!r}")
    return list(value)


class LookupResult(NamedTuple):
    """The answer of one nsqlookupd about a topic."""

    nsqds: tuple[str, ...] = ()  #: TCP addresses
    http_addresses: Mapping[str, str] = {}  #: TCP address -> HTTP address
    is_known: bool = True  #: it knows the topic, perhaps without an nsqd
    problem: str = ""  #: why a listed nsqd cannot be dialed


def config_for(address: str, configured: Iterable[str], config: Config) -> Config:
    """Return the config for requests to one nsqlookupd.

    A configured nsqlookupd may list any host as another nsqlookupd. So ``auth_secret`` is sent only
    to configured hosts, with their configured scheme, and to ``lookupd_authorized_hosts``.
    """
    if not (config.auth_secret and config.skip_lookupd_authorization):
        return config
    parts = split_address(address, "lookupd_http_address")
    for each in configured:
        given = split_address(each, "lookupd_http_address")
        if (parts.scheme, parts.hostname) == (given.scheme, given.hostname):
            return config
    host = parts.hostname or ""
    for text in config.lookupd_authorized_hosts.lower().split(","):
        name = text.strip()
        if name and (host == name or name.startswith(".") and host.endswith(name)):
            return config
    return config.replace(skip_lookupd_authorization=False)


def lookup_topic(address: str, topic: str, config: Config) -> LookupResult:
    """Ask one nsqlookupd for a topic. An unknown topic does not raise, as it may be created later.

    Blocks: ``dial_timeout`` to connect, then ``lookupd_poll_timeout`` for the whole answer.

    Raises:
        DiscoveryError: no answer, or an invalid one.
    """
    with client_errors(address, config), open_client(address, config) as client:
        try:
            found = client.lookup(topic)
        except NSQHTTPStatusError as exc:
            if not is_unknown_topic(address, topic, exc):
                raise
            return LookupResult(is_known=False)
        return LookupResult(
            tuple(usable(address, found.producers)),
            {one.tcp_address: one.http_address if one.http_port else ""
             for one in found.producers if not one.problem},
            problem=next((one.problem for one in found.producers if one.problem), ""))


def is_unknown_topic(address: str, topic: str, error: NSQHTTPStatusError) -> bool:
    if error.message != "TOPIC_NOT_FOUND":
        return False
    logger.debug("nsqlookupd %s does not list %s yet", without_password(address), topic,
                 extra=log_fields(topic=topic))
    return True


@contextlib.contextmanager
def client_errors(address: str, config: Config) -> Iterator[None]:
    try:
        yield
    except (NSQHTTPError, TLSError) as exc:
        reason = exc.reason
        is_unauthorized = isinstance(exc, NSQHTTPStatusError) and exc.status in (401, 403)
        if is_unauthorized and config.auth_secret and not config.skip_lookupd_authorization:
            reason += (
                "; auth_secret was not sent: skip_lookupd_authorization is false, or it was not"
                " configured and lookupd_authorized_hosts does not name it")
        raise DiscoveryError(address, reason, exc.hint or LOOKUPD_HTTP) from as_cause(exc)


def lookup_nodes(address: str, config: Config) -> list[str]:
    """Ask one nsqlookupd for the TCP addresses of all nsqds. See ``lookup_topic``."""
    with client_errors(address, config), open_client(address, config) as client:
        return usable(address, [node.producer for node in client.nodes()])


def open_client(address: str, config: Config) -> NsqlookupdHTTP:
    # Imported here, because requests takes longer to import than the rest of the library.
    from nsqclient.http.nsqlookupd import NsqlookupdHTTP

    return NsqlookupdHTTP(address, config, **client_options(config))


def client_options(config: Config) -> dict[str, Any]:
    timeout = config.lookupd_poll_timeout
    return {"connect_timeout": min(config.dial_timeout, timeout), "timeout": timeout,
            "max_answer_size": _MAX_ANSWER_SIZE}


def usable(address: str, producers: Iterable[Producer]) -> list[str]:
    """Return the TCP addresses of the producers that have one; log the others."""
    found = []
    for producer in producers:
        if producer.broadcast_address and producer.tcp_port and not producer.problem:
            found.append(producer.tcp_address)
        else:
            logger.log(
                _unusable.level(logging.WARNING), "nsqlookupd %s%s", without_password(address),
                f": {producer.problem}" if producer.problem
                else f" lists an unusable producer: {producer!r:.200}")
    return found


class Poller(Generic[A]):
    """Asks nsqlookupds the same question, with one request at a time to each of them.

    Args:
        question: asks one nsqlookupd; blocks, and raises DiscoveryError.
        run: queues a function that asks this nsqlookupd, for a thread that may block.
        lock: the owner's lock; guards the state of the Poller.
        merge: records an answer or a failure, and returns further nsqlookupds to ask. Called with
            the lock.
        report: acts on an answer or a failure. Called without the lock.
    """

    def __init__(
        self,
        question: Callable[[str], A],
        run: Callable[[str, Callable[[], None]], None],
        lock: Lock,
        merge: Callable[[str, A | None, DiscoveryError | None], Iterable[str]],
        report: Callable[[str, A | None, DiscoveryError | None], None],
    ) -> None:
        self._question = question
        self._run = run
        self._lock = lock
        self._merge = merge
        self._report = report
        #: nsqlookupd -> the number of the request to it, and when it was made, on time.monotonic()
        self._asking: dict[str, tuple[int, float]] = {}
        self._again: set[str] = set()  # nsqlookupds to ask again after their answer
        self.requests: int = 0  #: calls of ask()
        self.answered: int = 0  #: the highest number of a request with an answer

    @property
    def is_asking(self) -> bool:
        return bool(self._asking)

    def late(self, seconds: float) -> set[str]:
        """Return the nsqlookupds that have not answered for ``seconds``. Needs the lock."""
        until = time.monotonic() - seconds
        return {lookupd for lookupd, (_, since) in self._asking.items() if since < until}

    def all_late(self, seconds: float) -> bool:
        """True if all requests in progress are late. Needs the lock."""
        return len(self.late(seconds)) == len(self._asking)

    def ask(self, lookupds: Iterable[str], again: bool = False) -> None:
        """Ask these nsqlookupds, unless a request to them is in progress. Needs the lock.

        Args:
            again: ask those with a request in progress once more after their answer.
        """
        request = self.requests + 1, time.monotonic()
        for lookupd in lookupds:
            if lookupd not in self._asking:
                # In this order: after an exception of a signal handler in between, nothing must
                # wait for a request that was never queued.
                self._run(lookupd, partial(self._ask, lookupd))
                self._asking[lookupd] = request
            else:
                self._again.update([lookupd] * again)
        self.requests += 1

    def _ask(self, lookupd: str) -> None:
        """On a background thread."""
        answer = error = None
        try:
            answer = self._question(lookupd)
        except DiscoveryError as exc:
            error = exc
        except Exception as exc:  # or the owner would wait forever
            logger.exception("unexpected error in the lookup at %s", without_password(lookupd))
            error = DiscoveryError(lookupd, repr(exc))
        with self._lock:
            number, _ = self._asking.pop(lookupd, (0, 0.0))
            further = list(self._merge(lookupd, answer, error))
            if answer is not None:
                self.answered = max(self.answered, number)
                if lookupd in self._again:
                    further.append(lookupd)
            self._again.discard(lookupd)
            if further:
                self.ask(further)
        self._report(lookupd, answer, error)
