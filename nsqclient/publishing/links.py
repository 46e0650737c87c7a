"""``Links``: the nsqds of a producer, dialed in the background.

Publishers never dial: they take a connected nsqd, or wait until one is connected. So a dead
address costs nobody anything while another one is alive. A ``DialScheduler`` dials, a limited
number at once; what has to wait before it is dialed again is not in its hands yet.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping

from nsqclient.advice import explained
from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.errors import (
    ClosedError,
    ConnectError,
    NSQConnectionError,
    NSQError,
    ServerError,
)
from nsqclient.flow.delays import reconnect_delay
from nsqclient.publishing.link import Link
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DIRECT, standing_of
from nsqclient.runtime.dial_scheduler import DialScheduler
from nsqclient.runtime.line_limit import LineLimit
from nsqclient.runtime.monitor import Monitor
from nsqclient.runtime.threads import ThreadStartError

logger = logging.getLogger("nsqclient.producer")

#: Seconds for the dialogue before the first publish.
HANDSHAKE_TIMEOUT = 5.0
#: Longest pause in seconds between two dials of one nsqd while publishers wait and no other is
#: alive: it may be back.
_MAX_PAUSE = 0.5
#: Seconds between two looks at the connections at the end of the process.
_LOOK = 0.05


class Links:
    """All nsqds of a producer.

    Args:
        addresses: those that the user gave; ``set_addresses`` changes them.
        sticky: use one nsqd until it fails, instead of all in turn.
        lookupds: the nsqlookupds that may name others.

    Each nsqlookupd, and the addresses that the user gave, may use an equal part of the dials that
    are under way at once, so that no number of dead addresses that one of them names delays what
    the others name.

    Threads: any.
    """

    def __init__(
        self, addresses: Iterable[str], config: Config, sticky: bool, lookupds: Iterable[str] = ()
    ) -> None:
        self._config = config
        self._sticky = sticky
        self._rng = random.Random()
        self._turn = itertools.count(self._rng.randrange(1000))
        self._changed = Monitor()
        self._links: dict[str, Link] = {}  # by _changed
        self._alive: list[Link] = []  # those that are connected, the longest first; by _changed
        #: Those to use: connected, and not silent while another one is not. Replaced, never
        #: changed, so publishers read it unlocked.
        self.ready: tuple[Link, ...] = ()
        #: When those that are not connected are looked at again, while one is connected, and
        #: while publishers wait because none is.
        self._next_look = self._next_hurried_look = 0.0
        self._closed = False  # written under _changed
        self._serves = False  # connections need no reader: serve() receives for them
        self._failed_dials = LineLimit(logger)
        self._ended: list[Connection] = []  # lost connections, to be joined; by _changed
        #: Why no nsqd is known, where they come from nsqlookupd.
        self.discovery_error: NSQError | None = None
        given, asked = set(addresses), list(lookupds)
        self._dials: DialScheduler[str] = DialScheduler(
            ([DIRECT] if given or not asked else []) + asked, self
        )
        self.set_addresses({DIRECT: given})

    @property
    def addresses(self) -> list[str]:
        """The nsqds that may be used."""
        return list(self._links)

    def set_addresses(self, named: Mapping[str, Iterable[str]]) -> None:
        """Use these nsqds from now on; those not named are dropped where they are not connected.

        Args:
            named: the addresses that each source names: ``DIRECT``, or a nsqlookupd.
        """
        sources: dict[str, set[str]] = {}
        for source, addresses in named.items():
            for address in addresses:
                sources.setdefault(address, set()).add(source)
        with self._changed.lock:
            self._changed.notify_all()
            for address, names in sources.items():
                link = self._links.get(address)
                if link is None:
                    link = self._links[address] = Link(address, self)
                if link.sources != names:
                    link.sources = names
                    self._dials.set_sources(address, names)
            for address in set(self._links).difference(sources):
                if self._links[address].conn is None and self._links[address].dialed is None:
                    self._dials.discard(address)
                    del self._links[address]
            self._next_look = self._next_hurried_look = 0.0

    def take(self, deadline: Deadline) -> Link:
        """Return a connected nsqd, waiting for one where none is.

        Blocks: until the deadline.

        Raises:
            ConnectError: none was connected in time.
            NSQError: the reason why none can be used, where waiting cannot help.
            ClosedError: ``close()`` was called.
        """
        ready = self.ready
        if ready:
            self._look_after_the_rest()
            return ready[0] if self._sticky else ready[next(self._turn) % len(ready)]
        waiter = self._changed.waiter()
        try:
            while True:
                with self._changed.lock:
                    if self.ready:
                        return self.ready[0]
                    pause = self._want_the_rest(time.monotonic(), hurry=True)
                self._dials.dispatch()
                with self._changed.lock:
                    if self.ready:
                        return self.ready[0]
                    if self._closed:
                        raise ClosedError("the producer is closed")
                    is_over = deadline.expired()
                    has_news = time.monotonic() >= self._next_hurried_look
                    if pause is not None and has_news and not is_over:
                        continue  # a dial has ended meanwhile
                    reason = self._reason() if is_over or pause is None else None
                    if pause is None and reason is not None and not self._may_help(reason):
                        raise reason
                    if is_over:
                        raise reason or ConnectError("nsqd", "no nsqd was connected in time")
                    waiter.arm()
                waiter.sleep(deadline.at_most(_MAX_PAUSE if pause is None else pause))
        finally:
            waiter.close()

    def _look_after_the_rest(self) -> None:
        """Dial those that are not connected, now and then. Cheap where all are."""
        if len(self.ready) < len(self._links) and time.monotonic() >= self._next_look:
            with self._changed.lock:
                self._want_the_rest(time.monotonic())
            self._dials.dispatch()

    def _want_the_rest(self, now: float, hurry: bool = False) -> float | None:
        """Have dialed what is not connected and does not rest. Needs _changed.

        ``dispatch()`` comes next, without the lock.

        Returns: seconds until the next one has rested; None when all failed for good.
        """
        if hurry and now < self._next_hurried_look:  # publishers that wait share one look
            return self._next_hurried_look - now
        pause = None
        for link in self._links.values():
            if link.conn is not None or self._closed:
                continue
            if link.is_dialing:
                pause = min(pause or _MAX_PAUSE, _MAX_PAUSE)
                continue
            until = link.rests_until
            if hurry:  # publishers wait, so it is not left alone for long: it may be back
                until = min(until, link.failed_at + _MAX_PAUSE)
            rest = until - now
            if rest <= 0:
                standing = standing_of(link.has_worked, link.failures)
                self._dials.put(link.address, link.sources, standing)
                link.is_dialing = True  # last: Ctrl-C before it costs another put, at worst
                rest = _MAX_PAUSE
            if link.last_error is None or self._may_help(link.last_error) or link.is_dialing:
                pause = rest if pause is None else min(pause, rest)
        if not self._links:
            pause = _MAX_PAUSE
        self._next_look = now + (pause or _MAX_PAUSE)
        if hurry and pause is not None:
            self._next_hurried_look = now + pause
        return pause

    @staticmethod
    def _may_help(error: NSQError) -> bool:
        """Tell whether the same dial may succeed later."""
        return isinstance(error, NSQConnectionError)

    def _reason(self) -> NSQError | None:
        """Why there is no connection. Needs _changed."""
        errors = [link.last_error for link in self._links.values() if link.last_error is not None]
        return errors[-1] if errors else self.discovery_error

    def dial(self, address: str) -> None:
        """For the DialScheduler: connect, or note that it failed."""
        with self._changed.lock:
            link = self._links.get(address)
            if link is None:
                return  # dropped meanwhile
            if link.dialed is not None:
                return  # serve() came while a last thread dials it, or the other way round
            if link.conn is not None:
                link.is_dialing = False
                return
            conn = link.dialed = Connection(address, self._config, link)
        error = self._open(link, conn)
        with self._changed.lock:
            link.is_dialing, link.dialed = False, None
            closed = self._closed
            link.last_error = error
            if error is not None:
                self._on_dial_failed(link, error)
            elif not closed:
                link.has_stored = False
                link.has_worked = True
                link.conn = conn
        if error is None:
            # Started before anybody may use it: what it is sent is answered by its reader.
            try:
                conn.start()
            except ThreadStartError as exc:  # on_closed() hears of it from here
                if not self._serves:
                    conn.close(f"no thread to read from it: {exc}")
            if closed:
                conn.close("the producer was closed")
        elif not closed:
            # Once for each time of trouble; publishers that wait dial twice a second.
            level = logging.DEBUG
            if link.failures == 1:
                level = self._failed_dials.level(logging.WARNING)
            # What another dial does not help against is raised by the publish at once.
            logger.log(level, "cannot publish to %s%s: %s", link.address,
                       ", trying again" if self._may_help(error) else "",
                       explained(error, link.address))
        with self._changed.lock:
            if link.conn is conn and not conn.is_closed:
                self._changed.notify_all()
                link.is_silent = False
                self._alive.append(link)
                self._choose()

    def on_no_thread(self, address: str, error: ThreadStartError) -> None:
        """For the DialScheduler: the system has no thread left."""
        with self._changed.lock:
            link = self._links.get(address)
            if link is not None:
                link.is_dialing = False
                link.last_error = ConnectError(address, f"no thread to dial it: {error}")
                self._on_dial_failed(link, link.last_error)

    def _on_dial_failed(self, link: Link, error: NSQError) -> None:
        """Let it rest; publishers that wait look for themselves when it has. Needs _changed."""
        link.failures += 1
        self._rest(link, link.failures)
        if self._may_help(error) or any(other.is_dialing for other in self._links.values()):
            return
        self._changed.notify_all()  # perhaps no other can be used either
        self._next_hurried_look = 0.0

    def serve(self, is_over: Callable[[], bool], deadline: Deadline) -> None:
        """Dial and receive in the calling thread, until ``is_over()``.

        For the end of the process, when no thread can be started. Blocks: until the deadline.
        """
        self._serves = True

        def is_round_over() -> bool:
            return is_over() or deadline.expired()

        while not is_round_over():
            conns = [link.conn for link in self.ready if link.conn is not None]
            unread = [conn for conn in conns if not conn.has_reader]
            if unread:
                unread[0].serve(is_round_over)
                continue
            if not conns:
                for address in self.addresses:
                    if not self.ready and not is_round_over():
                        self.dial(address)
            if not self.ready or conns:  # readers that live on do their work
                self._changed.wait_for(is_over, deadline.at_most(_LOOK))

    def _choose(self) -> None:
        """Say anew which ones are to be used. Needs _changed."""
        alive = tuple(self._alive)
        self.ready = tuple(link for link in alive if not link.is_silent) or alive

    def _open(self, link: Link, conn: Connection) -> NSQError | None:
        """Open a connection; return what went wrong."""
        if self._closed:
            return ClosedError("the producer is closed")
        try:
            conn.open(Deadline(HANDSHAKE_TIMEOUT))
        except NSQError as exc:
            return exc
        except Exception as exc:
            logger.exception("dialing %s failed", link.address)
            return ConnectError(link.address, f"internal error: {exc!r}")
        return None

    def _rest(self, link: Link, failures: int) -> None:
        """Leave it alone for a while. Needs _changed."""
        delay = reconnect_delay(failures, self._config.max_reconnect_delay, self._rng)
        link.failed_at = time.monotonic()
        link.rests_until = link.failed_at + delay
        again = min(link.rests_until, link.failed_at + _MAX_PAUSE)
        self._next_hurried_look = min(self._next_hurried_look, again)

    def remove(self, link: Link, conn: Connection | None) -> None:
        """This connection is of no use any more."""
        with self._changed.lock:
            if link.conn is conn:
                link.conn = None
            if link.conn is None:
                self._alive = [other for other in self._alive if other is not link]
                self._choose()
                self._next_look = self._next_hurried_look = 0.0

    def pass_over(self, link: Link) -> bool:
        """It leaves a publish unanswered: use the others, where there are any.

        Returns: whether there is another one that is not silent.
        """
        with self._changed.lock:
            others = [other for other in self._alive if other is not link and not other.is_silent]
            news = bool(others) and link in self._alive and not link.is_silent
            if others:
                link.is_silent = True
                self._choose()  # also where an exception from a signal handler prevented it before
        if news:
            logger.warning("%s does not answer publishes: others are used", link.address)
        return bool(others)

    def on_heard(self, link: Link) -> None:
        """It answers again; with ``sticky`` it has lost its place."""
        with self._changed.lock:
            link.is_silent = False
            if link in self._alive:
                self._alive.remove(link)
                self._alive.append(link)
            self._choose()
        logger.info("%s answers publishes again", link.address)

    def in_turn(self) -> tuple[Link, ...]:
        """Return the nsqds to use, in the order in which to try them; none where none is there."""
        ready = self.ready
        if ready:
            self._look_after_the_rest()
        if self._sticky or len(ready) < 2:
            return ready[:1]
        first = next(self._turn) % len(ready)
        return ready[first:] + ready[:first]

    def on_unable(self, link: Link, conn: Connection) -> None:
        """nsqd is up and cannot store: do not come back at once."""
        with self._changed.lock:
            link.refusals += 1
            self._rest(link, link.refusals)
        self.remove(link, conn)

    def on_closed(self, link: Link, conn: Connection, error: NSQError) -> None:
        """A connection ended."""
        self.remove(link, conn)
        with self._changed.lock:
            self._changed.notify_all()
            link.last_error = error if isinstance(error, NSQConnectionError) else link.last_error
            if not link.has_stored and not isinstance(error, ServerError):
                # It takes connections and loses them: dialing at once would go round in circles.
                link.failures += 1
                self._rest(link, link.failures)
            self._ended = [old for old in self._ended if not old.join(Deadline(0))] + [conn]
            closed = self._closed
        if not closed:
            logger.warning("lost a connection, connecting again: %s", error)

    def close(self, deadline: Deadline) -> list[str]:
        """Refuse further use and end all connections; return the names of threads that stay."""
        with self._changed.lock:
            self._changed.notify_all()
            self._closed = True
            links = list(self._links.values())
            live = [link.conn for link in links if link.conn is not None]
            dialed = [link.dialed for link in links if link.dialed is not None]
            conns = [*self._ended, *live]
        self._dials.close()
        for conn in dialed:
            conn.close("the producer was closed")
        for conn in live:
            conn.drain(deadline.at_most(0.5))
            conn.close("the producer was closed")
        stuck = [f"nsq-reader-{conn.address}" for conn in conns if not conn.join(deadline)]
        return stuck + self._dials.join(deadline)

    def abandon(self) -> None:
        """In a forked child: give the parent's sockets back without a word to nsqd."""
        conns = list(self._ended)
        for link in self._links.values():
            conns += [conn for conn in (link.conn, link.dialed) if conn is not None]
        for conn in conns:
            conn.abandon()
