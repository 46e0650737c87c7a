"""``Acceptor``: a listening socket and the thread that accepts clients. Not specific to NSQ."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable

from nsqclient.runtime.addresses import format_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.log_lines import LineLimit
from nsqclient.runtime.transport import listen

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

#: Seconds to wait after a client could not be served.
_PAUSE = 0.05
#: Connections that may wait in the kernel; further clients connect a second later.
_BACKLOG = 1024
#: Maximum number of clients with a thread each; further connections are closed.
_MOST_THREADS = 1000


class Acceptor:
    """Accepts clients on one address. Lifecycle: created, :meth:`start`, :meth:`stop`, once.

    Args:
        name: of the threads, after ``nsq-``: ``nsq-lookupd-tcp``.
        serve: called with a client's blocking socket and its address, in a thread per client; may
            raise OSError. The socket is shut down when the acceptor stops, and closed afterwards.
        has_threads: False: ``serve`` takes over the socket, and is called in the acceptor's thread,
            which it must not block.
    """

    def __init__(
        self, name: str, host: str, port: int, serve: Callable[[socket.socket, str], None],
        has_threads: bool = True,
    ) -> None:
        self.host = host
        self._name = name
        self._port = port
        self._serve = serve
        self._take = self._start_thread if has_threads else serve
        #: Set by :meth:`stop`; threads of clients wait on it.
        self.stopping: threading.Event = threading.Event()
        self._listener: socket.socket | None = None
        self._waker: socket.socket | None = None  # the loop's other end of a pair
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._clients: dict[threading.Thread, socket.socket] = {}  # guarded by _lock
        self._lines = LineLimit(1)

    @property
    def port(self) -> int:
        """The port; before :meth:`listen` the requested one, which may be 0."""
        return self._port

    @property
    def address(self) -> str:
        return format_address(self.host, self._port)

    def listen(self) -> None:
        """Bind the port; clients wait in the kernel until :meth:`start`. Raises OSError."""
        try:
            self._listener = self._bind()
        except OSError as exc:
            reason = exc.strerror or str(exc)
            raise OSError(exc.errno, f"cannot listen on {self.address}: {reason}") from exc
        self.host, self._port = self._listener.getsockname()[:2]

    def start(self) -> None:
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
        """End all threads and their clients, and free the port. Idempotent. Any thread."""
        deadline = Deadline(None) if deadline is None else deadline
        self.stopping.set()
        if self._waker is not None:
            self._waker.close()
        if self._thread is not None:
            self._thread.join(deadline.remaining())
        if self._listener is not None:
            self._listener.close()
        self.drop_clients()
        with self._lock:
            threads = list(self._clients)
        for thread in threads:
            thread.join(deadline.remaining())
            if thread.is_alive():
                logger.warning("%s did not end in time", thread.name)

    def drop_clients(self) -> None:
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            try:
                # Wakes the thread that blocks in accept(); on Linux close() does not.
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its thread has closed it

    def _bind(self) -> socket.socket:
        listener = listen(self.host, self._port, _BACKLOG)
        listener.setblocking(False)
        return listener

    def _loop(self, listener: socket.socket, wake: socket.socket) -> None:
        with wake, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while True:
                selector.select()
                if self.stopping.is_set():
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
                    self._take(client, format_address(address[0], address[1]))
                except Exception as exc:
                    # No thread can be started, or there are too many: later ones may be served.
                    client.close()
                    self._refuse(exc)

    def _refuse(self, exc: Exception) -> None:
        logger.log(self._lines.level(logging.ERROR), "%s: a client is not served: %s",
                   self.address, exc, exc_info=not isinstance(exc, (OSError, RuntimeError)))
        self.stopping.wait(_PAUSE)

    def _start_thread(self, client: socket.socket, address: str) -> None:
        thread = threading.Thread(
            target=self._run, args=(client, address), name=f"nsq-{self._name}-{address}",
            daemon=True,
        )
        with self._lock:
            # Threads do not remove themselves, so stop() also joins those that are about to end.
            for old in [old for old in self._clients if not old.is_alive()]:
                del self._clients[old]
            if len(self._clients) >= _MOST_THREADS:
                raise RuntimeError(f"{_MOST_THREADS} clients have a thread each")
            thread.start()
            self._clients[thread] = client

    def _run(self, client: socket.socket, address: str) -> None:
        with client:
            try:
                self._serve(client, address)
            except OSError as exc:
                logger.debug("%s: %s", address, exc)
            except Exception:
                logger.exception("%s: client failed", address)
