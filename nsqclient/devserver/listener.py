"""A listening socket: one thread accepts clients and passes each one on.

Independent of NSQ and HTTP.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable

from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.log_lines import LineLimit

logger = logging.getLogger("nsqclient.devserver")

#: Seconds of rest after a client could not be served.
_PAUSE = 0.05
#: Connections that may wait in the kernel, as far as the system allows; more are dropped, and tried
#: again by the client's system after a second.
_BACKLOG = 1024

#: Takes over the socket of a client; the string is the client's address.
TakeClient = Callable[[socket.socket, str], None]


class Listener:
    """Accepts clients on one address.

    Life: created, :meth:`start`, :meth:`stop`, once.

    Args:
        name: of the thread, after ``nsq-``: ``nsq-lookupd-tcp``.
        host, port: where to listen; port 0 takes a free one.
        take_client: called with each client's blocking socket, in the listener's thread; must not
            block. When it raises, the listener closes the socket, logs why, and continues.
    """

    def __init__(self, name: str, host: str, port: int, take_client: TakeClient) -> None:
        self._name = name
        self._host = host
        self._port = port
        self._take_client = take_client
        self._stopping = threading.Event()
        self._listener: socket.socket | None = None
        self._waker: socket.socket | None = None  # the loop's other end of a pair
        self._thread: threading.Thread | None = None
        self._lines = LineLimit(logger)

    @property
    def host(self) -> str:
        """The host it listens on, as given."""
        return self._host

    @property
    def port(self) -> int:
        """The port it listens on; 0 before :meth:`listen` where 0 was asked for."""
        return self._port

    @property
    def address(self) -> str:
        """``host:port``."""
        return format_address(self._host, self._port)

    @property
    def stopping(self) -> threading.Event:
        """Set by :meth:`stop`; client threads wait on it."""
        return self._stopping

    def listen(self) -> None:
        """Bind the port; clients wait in the kernel until :meth:`start`.

        Raises:
            OSError: the port is taken or not allowed, or the host is not local.
        """
        try:
            self._listener = self._bind()
        except OSError as exc:
            reason = exc.strerror or str(exc)
            raise OSError(exc.errno, f"cannot listen on {self.address}: {reason}") from exc
        self._port = self._listener.getsockname()[1]

    def start(self) -> None:
        """Begin to accept; binds the port where :meth:`listen` has not."""
        if self._listener is None:
            self.listen()
        wake, self._waker = socket.socketpair()
        thread = threading.Thread(
            target=self._loop, args=(self._listener, wake), name=f"nsq-{self._name}", daemon=True
        )
        try:
            thread.start()
        except BaseException:
            wake.close()
            raise
        self._thread = thread

    def stop(self, deadline: Deadline | None = None) -> None:
        """Accept no more clients, and free the port. Any thread, any number of times.

        Blocks: until the thread has ended, or the deadline.
        """
        self._stopping.set()
        deadline = Deadline(None) if deadline is None else deadline
        if self._waker is not None:
            self._waker.close()
        if self._thread is not None:
            self._thread.join(deadline.remaining())
        if self._listener is not None:
            self._listener.close()

    def _bind(self) -> socket.socket:
        infos = socket.getaddrinfo(
            self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, proto, _, address = infos[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener

    def _loop(self, listener: socket.socket, wake: socket.socket) -> None:
        with wake, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                selector.select()
                if self._stopping.is_set():
                    return
                try:
                    client, address = listener.accept()
                except ConnectionError as exc:
                    logger.debug("accept on %s: %s", self.address, exc)  # the client closed it
                    continue
                except OSError as exc:
                    self._refuse(exc)
                    continue
                try:
                    client.setblocking(True)
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._take_client(client, format_address(address[0], address[1]))
                except Exception as exc:
                    # A thread cannot be started, say. Others may serve later clients.
                    client.close()
                    self._refuse(exc)

    def _refuse(self, exc: Exception) -> None:
        """Log why a client is not served, and pause: the cause may last, and the loop would spin.
        """
        logger.log(self._lines.level(logging.ERROR), "%s: a client is not served: %s",
                   self.address, exc, exc_info=not isinstance(exc, (OSError, RuntimeError)))
        self._stopping.wait(_PAUSE)
