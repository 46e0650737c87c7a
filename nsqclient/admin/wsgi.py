"""``WSGIServer``: waitress, with limits for slow clients and stricter heads of requests.

waitress reads requests and writes responses in one thread, and runs the application in a fixed
number of threads: a connection that waits occupies none. It runs within this process, as the
collector of the page needs, which a server that forks workers, such as gunicorn, does not.
"""

from __future__ import annotations

import logging
import re
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from nsqclient.admin.access_control import LARGEST_BODY

logger: logging.Logger = logging.getLogger("nsqclient.admin")

#: Threads that run the application: a peek or an action may occupy one for seconds.
_THREADS = 24
#: Open connections, as far as the limit of open files allows; further ones wait to be accepted.
_MOST_CONNECTIONS = 2000
_FILES_FOR_OTHERS = 200
#: Seconds for a client to send a whole request, and to read the part of a response that waits.
RECEIVE_TIMEOUT = 30.0
SEND_TIMEOUT = 60.0
#: Seconds for which a connection without a request is kept: longer than the interval of a page
#: that refreshes often. Connections that are open cost time at each event.
IDLE_TIMEOUT = 5.0
#: Seconds between two checks of these limits.
_CHECK_INTERVAL = 1.0
#: Bytes of the head of a request. A body up to the second limit is read, so that the application
#: can answer that it is too large.
_LARGEST_HEAD = 32 * 1024
_LARGEST_READ = 8 * LARGEST_BODY

#: Bytes that are invalid in a request line and in a header: RFC 9110, section 5.5.
_CONTROLS = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")
_LENGTH = re.compile(rb"(?im)^content-length[ \t]*:[ \t]*(.*?)[ \t]*$")
_ENCODING = re.compile(rb"(?im)^transfer-encoding[ \t]*:")


def head_error(head: bytes) -> str:
    """Return why the head of a request is rejected; empty: it is not.

    A proxy in front may read it in another way: take a bare CR for the end of a header, whose
    successor could then name the user, or use the other one of two lengths.
    """
    lines = head.split(b"\r\n")
    if any(_CONTROLS.search(line) for line in lines):
        return "a control character in a header"
    parts = lines[0].split(b" ")
    try:
        urlsplit(parts[1] if len(parts) > 1 else b"")
    except ValueError:
        return "the target of the request is no URL"
    text = b"\n".join(lines[1:])
    lengths = _LENGTH.findall(text)
    if len(lengths) > 1:
        return "several Content-Length headers"
    if not all(each.isdigit() for each in lengths):
        return "Content-Length is no number"
    if lengths and _ENCODING.search(text):
        return "both Content-Length and Transfer-Encoding"
    return ""


class _Parser(HTTPRequestParser):
    """Rejects heads that can be read in two ways."""

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the head of a request."""
        reason = head_error(header_plus.removesuffix(b"\r\n\r\n"))
        if reason:
            raise ParsingError(reason)
        super().parse_header(header_plus)


class Progress(NamedTuple):
    """The state of a connection, in seconds on ``time.monotonic()``."""

    receiving_since: float | None  #: a request is not received completely
    sending_since: float | None  #: a part of a response is not sent
    idle_since: float | None  #: neither, and no request is under way

    def is_overdue(self, now: float) -> bool:
        """Whether the connection is to be closed."""
        limits = ((self.receiving_since, RECEIVE_TIMEOUT), (self.sending_since, SEND_TIMEOUT),
                  (self.idle_since, IDLE_TIMEOUT))
        return any(since is not None and now - since > limit for since, limit in limits)


class _Channel(HTTPChannel):
    """One connection, with the times since when it has made no progress.

    waitress itself only closes connections without any activity: a client could send, or read, a
    byte at a time for ever.
    """

    parser_class = _Parser

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._current: HTTPRequestParser | None = None
        self._progress = Progress(None, None, time.monotonic())
        super().__init__(*args, **kwargs)

    def progress(self, now: float) -> Progress:
        """Return the state; to be called by the server's thread, about once a second."""
        former, request = self._progress, self.request
        is_same = request is not None and request is self._current
        self._current = request
        receiving = None if request is None else now
        if is_same:
            receiving = former.receiving_since
        sending = former.sending_since or now if self.total_outbufs_len else None
        is_idle = request is None and not self.requests and sending is None
        idle = former.idle_since or now if is_idle else None
        self._progress = Progress(receiving, sending, idle)
        return self._progress

    def received(self, data: bytes) -> bool:
        """Take bytes of a request."""
        self._progress = self._progress._replace(idle_since=None)
        return bool(super().received(data))

    def service(self) -> None:
        """Run the application for one request."""
        begun = time.thread_time()
        super().service()
        self.server.add_cost(time.thread_time() - begun)


class _Dispatcher(ThreadedTaskDispatcher):
    """Names its threads, and logs no warning when a request waits for a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: set[threading.Thread] = set()

    def start_new_thread(self, target: Callable[..., Any], thread_no: int) -> None:
        thread = threading.Thread(
            target=target, name=f"nsq-admin-request-{thread_no}", args=(thread_no,), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self.threads.discard(thread_no)
            raise
        self._alive.add(thread)

    def add_task(self, task: Any) -> None:
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()

    def begin(self, count: int) -> None:
        """Start the threads, as many as the system allows.

        Raises:
            RuntimeError: not even one could be started.
        """
        try:
            self.set_thread_count(count)
        except RuntimeError as exc:
            if not self._alive:
                raise
            logger.warning("requests are served by %d threads, not %d: %s",
                           len(self._alive), count, exc)

    def end(self) -> None:
        """End the threads that wait for a task; the others end after theirs."""
        self.set_thread_count(0)

    def join(self, timeout: float) -> list[str]:
        """Wait for the threads; return the names of those that still run."""
        until = time.monotonic() + timeout
        for thread in self._alive:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._alive if thread.is_alive()]


class WSGIServer(TcpWSGIServer):
    """Serves an application on a socket that listens. Life: created, ``start()``, ``stop()``.

    Threads: ``stop()``, any.
    """

    channel_class = _Channel
    next_channel_cleanup = float("inf")  # ours is in _loop

    def __init__(self, application: Any, sock: socket.socket) -> None:
        settings = Adjustments(
            sockets=[sock], ident="nsqadmin", server_name=sock.getsockname()[0],
            threads=_THREADS, asyncore_use_poll=True,
            connection_limit=_connection_limit(), log_socket_errors=False,
            max_request_header_size=_LARGEST_HEAD, max_request_body_size=_LARGEST_READ,
            clear_untrusted_proxy_headers=False,  # the application uses none of them
        )
        self._dispatcher = _Dispatcher()
        super().__init__(
            application, map={}, _sock=sock, dispatcher=self._dispatcher, adj=settings,
            sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()), bind_socket=False,
        )
        self._stopping = False
        self._lock = threading.Lock()
        self._requests_cost = 0.0  # guarded by _lock
        self._loop_cost = 0.0
        self._thread = threading.Thread(target=self._loop, name="nsq-admin-http", daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.effective_port)

    def add_cost(self, seconds: float) -> None:
        """Count the processor time of one request. Threads: any."""
        with self._lock:
            self._requests_cost += seconds

    def cpu_time(self) -> float:
        """Return the processor time that serving has taken so far, in seconds. Threads: any."""
        with self._lock:
            return self._requests_cost + self._loop_cost

    def start(self) -> None:
        """Serve, in threads of its own.

        Raises:
            RuntimeError: no thread can be started; the socket is closed.
        """
        try:
            self._dispatcher.begin(_THREADS)
            self._thread.start()
        except RuntimeError:
            self._dispatcher.end()
            self._dispatcher.join(1.0)
            self.close()
            raise

    def stop(self, timeout: float) -> list[str]:
        """Wait a moment for requests, then close their connections; return threads still alive."""
        self._dispatcher.end()
        self._dispatcher.join(timeout / 2)
        self._stopping = True
        self.pull_trigger()
        self._thread.join()
        return self._dispatcher.join(timeout / 2)

    def _loop(self) -> None:
        next_check = 0.0
        while not self._stopping:
            wasyncore.loop(timeout=_CHECK_INTERVAL, use_poll=True, map=self._map, count=1)
            now = time.monotonic()
            if now >= next_check:
                next_check = now + _CHECK_INTERVAL
                self._loop_cost = time.thread_time()
                self._close_overdue(now)
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        self.close()

    def _close_overdue(self, now: float) -> None:
        for channel in list(self.active_channels.values()):
            progress = channel.progress(now)
            if progress.is_overdue(now):
                if progress.idle_since is None:
                    logger.debug("%s is too slow: its connection is closed", channel.addr[0])
                channel.handle_close()


def _connection_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(50, min(_MOST_CONNECTIONS, soft - _FILES_FOR_OTHERS))
