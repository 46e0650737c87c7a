"""Looks up host names within a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.forking import run_after_fork
from nsqclient.runtime.threads import LibraryThread

#: What ``socket.getaddrinfo`` returns.
AddressInfo = list[tuple[Any, ...]]

#: Maximum number of lookups, each in its thread, that have no result yet.
_MOST_LOOKUPS = 64
#: Seconds for which the result of a late lookup may be used.
_MAX_AGE = 60.0


class _Lookup(LibraryThread):
    """The system's lookup of one name: it takes no timeout and cannot be cancelled."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(self._look_up, f"nsq-lookup-{host}")
        self._place = host, port
        self.result: AddressInfo | OSError | UnicodeError | None = None
        self._done_at = 0.0

    def _look_up(self) -> None:
        try:
            self.result = socket.getaddrinfo(*self._place, 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            self.result = exc
        self._done_at = time.monotonic()

    @property
    def is_outdated(self) -> bool:
        return self.result is not None and time.monotonic() - self._done_at > _MAX_AGE


_lookups: dict[tuple[str, int], _Lookup] = {}
run_after_fork(_lookups.clear)


def find_addresses(host: str, port: int, deadline: Deadline) -> AddressInfo:
    """Return ``socket.getaddrinfo`` of a host.

    A late lookup continues in its thread, and the next call for the host uses its result.

    Raises:
        socket.gaierror: the host is unknown, the deadline expired, or too many lookups hang.
        UnicodeError: the name is malformed.
    """
    with contextlib.suppress(OSError, UnicodeError):  # an IP address needs no thread
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    place = host, port
    for other, lookup in list(_lookups.items()):
        if lookup.is_outdated:
            _lookups.pop(other, None)
    if len(_lookups) >= _MOST_LOOKUPS and place not in _lookups:
        raise socket.gaierror(
            socket.EAI_AGAIN, f"{_MOST_LOOKUPS} lookups of other hosts have no result yet")
    lookup = _lookups.setdefault(place, _Lookup(host, port))
    lookup.launch()
    lookup.join(deadline.remaining())
    if lookup.result is None:
        raise socket.gaierror(
            socket.EAI_AGAIN, f"its lookup has no result after {deadline.timeout:g} s")
    _lookups.pop(place, None)
    if isinstance(lookup.result, Exception):
        raise lookup.result
    return lookup.result
