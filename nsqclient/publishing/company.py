"""``Company``: blocking publishes of many threads that travel together.

Waking a thread costs more than anything else here. So no thread stands between the callers and the
socket; those that have travelled are woken one after the other (``waking``); what they publish next
comes together meanwhile, the last of them sends it, and one of those whose messages it sends
receives the answer for all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from nsqclient.connection import Connection
from nsqclient.errors import ConnectError, NSQError, ServerError
from nsqclient.protocol import commands
from nsqclient.publishing.attempts import Companion
from nsqclient.publishing.link import JustEnded, Link, patience
from nsqclient.publishing.links import Links
from nsqclient.publishing.verdicts import Verdict, is_about_one_message
from nsqclient.publishing.waking import WakingLine
from nsqclient.runtime.bell import Bell, Bells
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.trying import is_foreign, try_move

#: Most messages of one trip.
_MOST = 2000


class Part:
    """Companions to one topic, in one command; its token."""

    __slots__ = ("companions", "_trip")

    def __init__(self, companions: list[Companion], trip: Trip) -> None:
        self.companions = companions
        self._trip = trip

    def command(self) -> bytes:
        """Build the command."""
        first = self.companions[0]
        if len(self.companions) == 1:
            return commands.pub_unchecked(first.topic, first.body)
        return commands.mpub_unchecked(first.topic, [one.body for one in self.companions])

    def settle(self, verdict: Verdict, error: NSQError | None) -> None:
        """The verdict is known. On a reader thread."""
        if verdict is Verdict.REJECTED and len(self.companions) > 1:
            if isinstance(error, ServerError) and is_about_one_message(error):
                verdict = Verdict.NOT_READ  # one of them is guilty: each tries again alone
        for one in self.companions:
            if not one.is_done:  # else the trip was aborted
                one.set(verdict, error)
        self._trip.on_part_settled(self)


class Trip:
    """What is sent to one nsqd at once: a part for each topic. The nsqd is busy until the end.

    Args:
        held: what was moved there from the link's lane, and is moved back at the end.
    """

    def __init__(
        self, link: Link, held: deque[None], companions: list[Companion], company: Company
    ) -> None:
        self._link = link
        self._held = held
        self._company = company
        by_topic: dict[str, list[Companion]] = {}
        for one in companions:
            by_topic.setdefault(one.topic, []).append(one)
        self._parts = [Part(together, self) for together in by_topic.values()]
        self._unsettled = set(self._parts)

    def begin(self) -> Connection:
        """Send it, and return by what. Does not wait for the socket.

        Raises:
            JustEnded: nothing was sent.
        """
        return self._link.send_several(
            [(part.command(), part) for part in self._parts], Deadline(0)
        )

    def abort(self, verdict: Verdict, error: NSQError) -> None:
        """It was not begun, or nobody knows how far."""
        try_move(self._held, self._link.lane)
        for part in self._parts:
            for one in part.companions:
                if not one.is_done:
                    one.settle(verdict, error)
        self._parts = []
        self._unsettled.clear()

    def on_part_settled(self, part: Part) -> None:
        """Give the nsqd free when all is settled, and wake who waited for this part.

        On a thread that receives; once more on the reader where that was interrupted.
        """
        self._unsettled.discard(part)
        if not self._unsettled:
            try_move(self._held, self._link.lane)
            self._parts = []  # they know this trip: a circle would keep the bells
        self._company.wake(part.companions)


class Company:
    """The queue of one producer's companions.

    Threads: any. There is no lock: who has taken what is in ``Link.lane`` may send to that nsqd,
    and looks at the queue once more after giving it back.
    """

    def __init__(
        self, links: Links, max_body_size: int,
        publish_alone: Callable[[str, bytes, Deadline, Companion | None], None],
    ) -> None:
        self._links = links
        self._publish_alone = publish_alone
        self._max_bytes = max_body_size
        self._queue: deque[Companion] = deque()
        self._line = WakingLine(self.send_waiting)
        self._bells = Bells()

    def publish(self, topic: str, body: bytes, deadline: Deadline) -> None:
        """Publish a message, together with those of other threads. Blocks and raises as
        ``Producer.publish``.
        """
        if not self._links.ready:
            self._publish_alone(topic, body, deadline, None)
            return
        if self._line.is_slow:  # who rings a lock does not lose the interpreter to what computes
            self._travel(Companion(topic, body, Bell()), deadline)
            return
        bell = self._bells.take()
        try:
            self._travel(Companion(topic, body, bell), deadline)
        finally:
            self._bells.give(bell)

    def _travel(self, companion: Companion, deadline: Deadline) -> None:
        seconds = patience(deadline.timeout)
        try:
            self.join(companion)
            self.wait(companion, seconds, deadline.began + seconds)
            if not companion.is_done or companion.verdict is not Verdict.STORED:
                self._publish_alone(companion.topic, companion.body, deadline, companion)
        finally:
            self._leave(companion)

    def join(self, companion: Companion) -> None:
        """Queue a message and see that it is sent; ``wait`` comes next. Does not block."""
        self._queue.append(companion)
        if not self._line.is_moving:  # else those that are being woken come first
            self.send_waiting(companion)

    def wait(self, companion: Companion, seconds: float, until: float) -> bool:
        """Wait until one that joined is settled; False when it was not in time.

        Args:
            seconds, until: the time for it, and its end on ``time.monotonic()``. Where that is
                more than ``TICK`` it may take longer, by ``TICK``.
        """
        try:
            while not companion.is_done:
                conn = companion.receives_from
                if conn is not None:
                    conn.receive(Part, companion.is_settled, Deadline(max(0.0, seconds)))
                    companion.receives_from = None  # it has called the reader, where need was
                elif seconds > 0:
                    self._line.sleep(companion, seconds)
                else:
                    return False
                if not companion.is_done:
                    seconds = until - time.monotonic()
        finally:
            self._leave(companion)
        return True

    @staticmethod
    def _leave(companion: Companion) -> None:
        """It waits no more: where it was asked to receive, and has not, the reader does."""
        conn, companion.receives_from = companion.receives_from, None
        if conn is not None:
            conn.call_reader()

    def close(self, deadline: Deadline, is_idle: bool) -> list[str]:
        """End what runs here; return the names of threads that stay.

        Args:
            is_idle: no publish is under way.
        """
        return [] if self._bells.close(deadline, is_idle) else ["nsq-ticker"]

    def abandon(self) -> None:
        """In a forked child: give back what it shares with the parent."""
        self._bells.abandon()

    def wake(self, companions: list[Companion]) -> None:
        """Their outcome is set. On a thread that receives; does not block."""
        self._line.wake(companions)

    def send_waiting(self, own: Companion | None = None) -> None:
        """Send what waits, where an nsqd is free. ``own``: the one of the calling thread."""
        while self._queue:
            links = self._links.in_turn()
            if not links:
                self._send_home()
                return
            for link in links:
                if self._try_trip(link, own):
                    break
            else:
                return  # whoever ends a trip looks again

    def _try_trip(self, link: Link, own: Companion | None) -> bool:
        """Take what waits and send it, unless the nsqd is busy: then False."""
        held: deque[None] = deque()
        taken: list[Companion] = []
        trip: Trip | None = None
        try:
            try:
                if not try_move(link.lane, held):
                    return False
                self._take(link, taken)
                if taken:
                    trip = Trip(link, held, taken, self)
                    self._appoint(trip.begin(), taken, own)
                    return True
            except JustEnded as exc:
                if trip is not None:
                    trip.abort(Verdict.NOT_READ, exc)
        except BaseException:
            # Ctrl-C in the thread of one that sends for all: they must not wait for it.
            try_move(held, link.lane)
            error = ConnectError(link.address, "interrupted while sending")
            if trip is not None:
                trip.abort(Verdict.UNKNOWN, error)
            for one in taken:
                if not one.is_done:
                    one.settle(Verdict.UNKNOWN, error)
            raise
        try_move(held, link.lane)
        return True

    def _appoint(
        self, conn: Connection, taken: list[Companion], own: Companion | None
    ) -> None:
        """Ask one of those that were sent there to receive the answer for all."""
        if self._line.is_slow:  # each who is woken waits for the interpreter: one less
            conn.call_reader()
            return
        if own is not None and own in taken:
            own.receives_from = conn
            return
        for one in taken:
            one.receives_from = conn  # before the look at whether it waits: one that leaves sees it
            if one.is_waiting:
                one.bell.ring()
                return
            one.receives_from = None
        conn.call_reader()

    def _take(self, link: Link, taken: list[Companion]) -> None:
        """Move those that may travel together from the queue to ``taken``."""
        size = 4
        try:
            while len(taken) < _MOST:
                # In one call, so that an exception from a signal handler cannot lose it.
                taken.extend(map(deque.popleft, (self._queue,)))
                one = taken[-1]
                size += 4 + len(one.body)
                if len(taken) > 1 and size > self._max_bytes:
                    self._queue.appendleft(one)
                    taken.pop()
                    break
                one.link = link  # before the look: see withdraw()
                if one.is_withdrawn:
                    taken.pop()
        except IndexError as exc:
            if is_foreign(exc):
                raise

    def _send_home(self) -> None:
        """No nsqd is there: each waits for one by itself."""
        reason = ConnectError("nsqd", "no nsqd is connected any more")
        home: list[Companion] = []
        try:
            while self._queue:
                try:
                    home.extend(map(deque.popleft, (self._queue,)))  # as in _take
                except IndexError as exc:
                    if is_foreign(exc):
                        raise
                    return
                home[-1].settle(Verdict.NOT_READ, reason)
        except BaseException:
            for one in home:
                one.settle(Verdict.NOT_READ, reason)
            raise
