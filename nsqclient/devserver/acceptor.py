"""A listening socket with one thread per client, all of which end on stop.

Threads keep the code simple, and a client that hangs delays no other.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from nsqclient.devserver.listener import Listener
from nsqclient.runtime.deadline import Deadline

logger = logging.getLogger("nsqclient.devserver")

#: Serves one client until it returns; the acceptor closes the socket. The string is the
#: client's address.
ServeClient = Callable[[socket.socket, str], None]


class Acceptor(Listener):
    """Accepts clients on one address, and serves each in a thread.

    Life: created, :meth:`start`, :meth:`stop`, once.

    Args:
        name: of the threads, after ``nsq-``: ``nsq-lookupd-tcp``.
        host, port: where to listen; port 0 takes a free one.
        serve: called in a thread per client with a blocking socket, which is shut down when
            the acceptor stops. It may raise OSError.
    """

    def __init__(self, name: str, host: str, port: int, serve: ServeClient) -> None:
        super().__init__(name, host, port, self._add)
        self._serve = serve
        self._lock = threading.Lock()
        self._clients: dict[threading.Thread, socket.socket] = {}  # guarded by _lock

    def stop(self, deadline: Deadline | None = None) -> None:
        """End all clients and all threads, and free the port. Any thread, any number of times.

        Blocks: until every thread has ended, or the deadline; a warning names the others.
        """
        # Each step can be repeated: a second caller waits for the same threads.
        deadline = Deadline(None) if deadline is None else deadline
        super().stop(deadline)
        # No clients are added any more.
        with self._lock:
            clients = dict(self._clients)
        for client in clients.values():
            _shutdown(client)
        for thread in clients:
            thread.join(deadline.remaining())
            if thread.is_alive():
                logger.warning("%s did not end in time", thread.name)

    def drop_clients(self) -> None:
        """End every connection now; the acceptor continues."""
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            _shutdown(client)

    def _add(self, client: socket.socket, address: str) -> None:
        thread = threading.Thread(
            target=self._run, args=(client, address), name=f"nsq-{self._name}-{address}",
            daemon=True,
        )
        with self._lock:
            # Ended threads are removed here, not by themselves, so that stop() also joins
            # those that are about to end.
            for old in [old for old in self._clients if not old.is_alive()]:
                del self._clients[old]
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


def _shutdown(sock: socket.socket) -> None:
    """Wake the thread that blocks on the socket; closing alone does not on Linux."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # its thread has closed it
