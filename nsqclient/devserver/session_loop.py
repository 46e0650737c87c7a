"""``SessionLoop``: the thread that serves the sessions of a server, with an event loop.

A request to another server (AUTH, the channels of a new topic) delays all clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.session import Session, SessionConfig
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.threads import LibraryThread

logger: logging.Logger = logging.getLogger("nsqclient.devserver")


class SessionLoop:
    """An event loop in a thread. Lifecycle: created, :meth:`start`, :meth:`stop`. Threads: any."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: set[Session] = set()
        self._thread = LibraryThread(self._run, f"nsq-{name}")

    def start(self) -> None:
        """Start the thread. If it raises OSError or RuntimeError, nothing stays open."""
        self._loop = asyncio.new_event_loop()
        try:
            self._thread.launch()
        except RuntimeError:
            self._loop.close()
            raise

    def stop(self, deadline: Deadline | None = None) -> None:
        """End the thread, after its sessions. Idempotent."""
        if self._loop is not None:
            self.call(self._loop.stop)
        self._thread.join(None if deadline is None else deadline.remaining())

    def is_running(self) -> bool:
        """True if the thread runs. False in a forked process."""
        return self._thread.is_alive()

    def call(self, function: Callable[[], object]) -> bool:
        """Call a function in the event loop; False after its end."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)
                return True
        return False

    def connect(self, sock: socket.socket, session: Session) -> bool:
        """Serve a client; False after the end."""
        sock.setblocking(False)
        loop = self._loop
        assert loop is not None
        self._sessions.add(session)
        return self.call(
            lambda: loop.create_task(loop.connect_accepted_socket(lambda: session, sock)))

    def discard(self, session: Session) -> None:
        """Forget a session that has ended."""
        self._sessions.discard(session)

    def _run(self) -> None:
        assert self._loop is not None
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._drop_sessions())
        finally:
            self._loop.close()

    async def _drop_sessions(self) -> None:
        """End connections that came while the listener did not end in time."""
        while self._sessions:
            for session in list(self._sessions):
                session.drop()
            await asyncio.sleep(0)


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
            self._engine, self.faults, self.config, address, number, self._loop.call,
            self._remove)
        with self._changed:
            self._sessions[number] = session
        if not self._loop.connect(sock, session):
            sock.close()
            self._remove(session)

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
        self._loop.discard(session)
        with self._changed:
            del self._sessions[session.number]
            self._changed.notify_all()
