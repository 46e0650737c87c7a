"""One thread that serves the sessions of a server: it waits for all sockets at once.

A request to another server (AUTH, the channels of a new topic) delays all clients.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.session import Session, SessionConfig
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_NEVER = float("inf")
#: Wake-up bytes to read at once.
_MOST_SIGNALS = 64
#: Entries by which the heap may exceed twice the number of valid ones before it is rebuilt.
_HEAP_SLACK = 64


class SessionLoop:
    """Serves sessions. Lifecycle: created, :meth:`start`, :meth:`stop`.

    Threads: ``wake``, ``stop`` and ``is_running``, any thread; the rest, the loop's own.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._woken: dict[Session, None] = {}  # guarded by _lock
        self._is_waiting = False  # guarded by _lock: a byte must be sent to wake the thread
        self._is_stopping = False  # guarded by _lock
        self._is_over = False  # guarded by _lock: no session is served any more
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None  # guarded by _lock
        self._thread = LibraryThread(self._run, f"nsq-{name}")
        # Used only by the loop's thread, as all below.
        self._interests: dict[Session, int] = {}  # the events that the selector waits for
        # A heap of times, unique numbers and sessions; only the entry with the time that is in
        # _scheduled counts.
        self._dues: list[tuple[float, int, Session]] = []
        self._scheduled: dict[Session, float] = {}
        self._order = 0

    def start(self) -> None:
        """Start the thread. If it raises OSError or RuntimeError, nothing stays open."""
        with contextlib.ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._reader, self._writer = map(stack.enter_context, socket.socketpair())
            self._reader.setblocking(False)
            self._writer.setblocking(False)
            self._selector.register(self._reader, selectors.EVENT_READ)
            self._thread.launch()
            stack.pop_all()

    def stop(self, deadline: Deadline | None = None) -> None:
        """End the thread; its sessions have ended before. Idempotent."""
        with self._lock:
            self._is_stopping = True
            self._signal()
        self._thread.join(None if deadline is None else deadline.remaining())

    def is_running(self) -> bool:
        """True if the thread runs. False in a forked process."""
        return self._thread.is_alive()

    def wake(self, session: Session) -> bool:
        """Serve a session soon, which may be a new one. Returns False after the loop has ended."""
        with self._lock:
            if not self._is_over:
                self._woken[session] = None
                self._signal()
            return not self._is_over

    def _signal(self) -> None:
        if self._is_waiting and self._writer is not None:
            self._is_waiting = False
            self._writer.send(b"!")

    def _run(self) -> None:
        assert self._reader is not None and self._writer is not None
        while self._serve_ready():
            pass
        # Connections that came while the listener did not end in time.
        for session in {*self._interests, *self._scheduled}:
            session.abort()
            self._end(session)
        with self._lock:
            self._writer.close()
            self._writer = None
        self._reader.close()
        self._selector.close()

    def _serve_ready(self) -> bool:
        with self._lock:
            woken, self._woken = self._woken, {}
            self._is_over = self._is_stopping and not woken
            if self._is_over:
                return False
            self._is_waiting = not woken
        ready = self._wait(0.0 if woken else self._timeout())
        with self._lock:
            self._is_waiting = False
        for session in woken:
            ready.setdefault(session, False)
        self._add_due(ready)
        for session, is_readable in ready.items():
            self._serve(session, is_readable)
        return True

    def _wait(self, timeout: float | None) -> dict[Session, bool]:
        """Wait for the sockets; return the sessions to serve, and whether they have input."""
        found: dict[Session, bool] = {}
        for key, events in self._selector.select(timeout):
            if key.data is not None:
                # kqueue reports "readable" and "writable" of a socket one after the other.
                is_readable = bool(events & selectors.EVENT_READ)
                found[key.data] = found.get(key.data, False) or is_readable
            elif self._reader is not None:
                self._reader.recv(_MOST_SIGNALS)
        return found

    def _serve(self, session: Session, is_readable: bool) -> None:
        if session.is_over():
            return
        try:
            session.step(is_readable)
            if not session.is_over():
                self._watch(session, session.interest)
                self._schedule(session)
        except OSError as exc:
            logger.debug("%s: %s", session.address, exc)
            session.abort()
        except BaseException:  # a SystemExit of an observer must not end the thread
            logger.exception("%s: client failed", session.address)
            session.abort()
        if session.is_over():
            self._end(session)

    def _end(self, session: Session) -> None:
        self._scheduled.pop(session, None)
        try:
            self._watch(session, 0)
            session.close()
        except BaseException:
            logger.exception("%s: client failed", session.address)

    def _watch(self, session: Session, interest: int) -> None:
        """Select these events of the session's socket; 0: none."""
        before = self._interests.get(session, 0)
        if interest == before:
            return
        if not interest:
            del self._interests[session]
            self._selector.unregister(session)
            return
        if before:
            self._selector.modify(session, interest, session)
        else:
            self._selector.register(session, interest, session)
        self._interests[session] = interest

    def _schedule(self, session: Session) -> None:
        due = session.next_due()
        if due >= self._scheduled.get(session, _NEVER):
            return
        self._order += 1
        self._scheduled[session] = due
        heapq.heappush(self._dues, (due, self._order, session))
        if len(self._dues) > 2 * len(self._scheduled) + _HEAP_SLACK:
            self._dues = [
                entry for entry in self._dues if self._scheduled.get(entry[2]) == entry[0]]
            heapq.heapify(self._dues)

    def _timeout(self) -> float | None:
        return max(0.0, self._dues[0][0] - time.monotonic()) if self._dues else None

    def _add_due(self, ready: dict[Session, bool]) -> None:
        """Add the sessions that are due; skip replaced entries."""
        now = time.monotonic()
        while self._dues and self._dues[0][0] <= now:
            due, _, session = heapq.heappop(self._dues)
            if self._scheduled.get(session) == due:
                del self._scheduled[session]
                ready.setdefault(session, False)


class Sessions:
    """The sessions of one server, served by a loop. Threads: any."""

    def __init__(self, loop: SessionLoop, engine: Engine[Any], numbers: Iterator[int]) -> None:
        self._loop = loop
        self._engine = engine
        self._numbers = numbers
        #: Set before the first client comes.
        self.config: SessionConfig | None = None
        self.faults: Faults = Faults(self.wake, self.drop, self._deliver_again)
        # Taken inside the engine's, never around it; notified when a session has ended.
        self._changed = threading.Condition()
        self._sessions: dict[int, Session] = {}  # guarded by _changed

    def serve(self, sock: socket.socket, address: str) -> None:
        """Serve a client until its connection ends; takes over its socket."""
        logger.info("TCP: new client(%s)", address)
        assert self.config is not None
        number = next(self._numbers)
        session = Session(
            self._engine, self.faults, self.config, sock, address, number, self._loop.wake,
            self._remove)
        with self._changed:
            self._sessions[number] = session
        if not self._loop.wake(session):
            session.abort()
            session.close()

    def by_number(self) -> dict[int, Session]:
        with self._changed:
            return dict(self._sessions)

    def wake(self) -> None:
        """Make all sessions look at the faults again."""
        for session in self.by_number().values():
            session.wake()

    def drop(self, client_id: str | None, reset: bool) -> int:
        return sum([
            session.drop(reset) for session in self.by_number().values()
            if client_id in (None, session.core.settings.client_id, session.address)
        ])

    def _deliver_again(self, topic: str, channel: str) -> int:
        with self._engine as broker:
            count: int = broker.channel(topic, channel).deliver_again()
            return count

    def end(self, deadline: Deadline | None = None) -> None:
        """End all sessions, after the listener. Blocks until all have ended."""
        self.drop(None, False)
        with self._changed:
            self._changed.wait_for(
                lambda: not self._sessions or not self._loop.is_running(),
                None if deadline is None else deadline.remaining())
        for session in self.by_number().values():
            logger.warning("client(%s) did not end in time", session.address)

    def _remove(self, session: Session) -> None:
        with self._changed:
            del self._sessions[session.number]
            self._changed.notify_all()
