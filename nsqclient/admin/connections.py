"""``PageServer``: waitress with limits on the connections of one client.

Without them, a client with many silent connections would keep others from the page.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

#: Connections at a time: in all, and of one address. A proxy in front has one address.
MOST_CONNECTIONS, MOST_OF_ADDRESS = 500, 200
HEAD_TIMEOUT = 10.0


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection that knows since when the head of a request is outstanding."""

    _head_since: float | None = None  # None: idle after a request

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_since = time.monotonic()

    def received(self, data: bytes) -> Any:
        found = super().received(data)
        if self.request is None or self.request.headers_finished:
            self._head_since = None
        elif self._head_since is None:
            self._head_since = time.monotonic()
        return found

    @property
    def is_late(self) -> bool:
        return self._head_since is not None and time.monotonic() - self._head_since > HEAD_TIMEOUT


class PageServer(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """Serves an application on a listening socket. ``run()`` blocks. ``options``: of waitress."""

    channel_class = Channel

    def __init__(
        self, application: Callable[..., Any], sock: socket.socket, **options: Any
    ) -> None:
        # The limit of waitress stops accepting, also for others: ours comes before it.
        adjustments = Adjustments(
            sockets=[sock], connection_limit=2 * MOST_CONNECTIONS, cleanup_interval=1, **options)
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        super().__init__(
            application, {}, True, sock, dispatcher=dispatcher, adj=adjustments,
            bind_socket=False, sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()))

    def handle_accept(self) -> None:
        super().handle_accept()
        victim = choose_victim(self.active_channels.values())
        if victim is not None:
            victim.will_close = True

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        for channel in self.active_channels.values():
            if channel.is_late:
                channel.will_close = True


def choose_victim(channels: Iterable[Any]) -> Any:
    """Return the connection to close; None if there are not too many.

    Of the address with the most connections, it is the one that is idle for the longest time, or
    the newest one if all have requests.
    """
    left = [each for each in channels if not each.will_close]
    counts = Counter(each.addr[0] for each in left)
    address, count = counts.most_common(1)[0] if counts else ("", 0)
    if count <= MOST_OF_ADDRESS and len(left) <= MOST_CONNECTIONS:
        return None
    own = [each for each in left if each.addr[0] == address]
    idle = [each for each in own if not each.requests]
    return min(idle, key=lambda each: each.last_activity) if idle else own[-1]
