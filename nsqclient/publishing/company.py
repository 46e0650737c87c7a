"""``Company``: blocking publishes of many threads that travel together.

Waking a thread costs more than anything else here, so no thread stands between the callers and
the socket, and those that have travelled are woken one after the other (``waking``). What they
publish next comes together meanwhile, and the last of them sends it.
"""

from __future__ import annotations

from collections import deque

from nsqclient.errors import ConnectError, NSQError, ServerError
from nsqclient.protocol import commands
from nsqclient.publishing.attempts import Companion
from nsqclient.publishing.link import JustEnded, Link
from nsqclient.publishing.links import Links
from nsqclient.publishing.verdicts import Verdict, is_about_one_message
from nsqclient.publishing.waking import WakingLine
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.trying import try_lock

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
        self._trip.on_part_settled(self.companions)


class Trip:
    """What is sent to one nsqd at once: a part for each topic. The nsqd is busy until the end."""

    def __init__(self, link: Link, companions: list[Companion], company: Company) -> None:
        self._link = link
        self._company = company
        by_topic: dict[str, list[Companion]] = {}
        for one in companions:
            by_topic.setdefault(one.topic, []).append(one)
        self._parts = [Part(together, self) for together in by_topic.values()]
        self._unsettled = len(self._parts)
        self._lane_is_ours = [True]  # popped by who gives it back

    def begin(self) -> None:
        """Send it. Does not wait for the socket.

        Raises:
            JustEnded: nothing was sent.
        """
        self._link.send_several(
            [(part.command(), part) for part in self._parts], Deadline(0)
        )

    def abort(self, verdict: Verdict, error: NSQError) -> None:
        """It was not begun, or nobody knows how far."""
        if self._end():
            self._link.lane.release()
        for part in self._parts:
            for one in part.companions:
                if not one.is_done:
                    one.settle(verdict, error)

    def on_part_settled(self, companions: list[Companion]) -> None:
        """Give the nsqd free when all is settled, and wake these. On a reader thread."""
        self._unsettled -= 1
        if not self._unsettled and self._end():
            self._link.lane.release()
        self._company.wake(companions)

    def _end(self) -> bool:
        """True once. It may be aborted while a reader hears of it."""
        try:
            return self._lane_is_ours.pop()
        except IndexError:
            return False


class Company:
    """The queue of one producer's companions.

    Threads: any. Nothing here is guarded by a lock but by ``Link.lane``, which is only ever tried:
    who holds it may send to that nsqd, and looks at the queue once more after releasing it.
    """

    def __init__(self, links: Links, max_body_size: int) -> None:
        self._links = links
        self._max_bytes = max_body_size
        self._queue: deque[Companion] = deque()  # appended and popped without a lock
        self._line = WakingLine(self.send_waiting)

    def join(self, companion: Companion) -> None:
        """Queue a message and see that it is sent; ``settle`` of it is called. Does not block."""
        self._queue.append(companion)
        if not self._line.is_moving():  # else those that are being woken come first
            self.send_waiting()

    def wait(self, companion: Companion, timeout: float) -> bool:
        """Wait until one that joined is settled; False when it was not in time."""
        return self._line.wait(companion, timeout)

    def wake(self, companions: list[Companion]) -> None:
        """Their outcome is set. On a reader thread, which does not wait."""
        self._line.wake(companions)

    def send_waiting(self) -> None:
        """Send what waits, where an nsqd is free."""
        while self._queue:
            links = self._links.in_turn()
            if not links:
                self._send_home()
                return
            for link in links:
                if self._try_trip(link):
                    break
            else:
                return  # whoever ends a trip looks again

    def _try_trip(self, link: Link) -> bool:
        """Take what waits and send it, unless the nsqd is busy: then False."""
        held: list[bool] = []
        taken: list[Companion] = []
        trip: Trip | None = None
        try:
            if not try_lock(link.lane, held):
                return False
            self._take(link, taken)
            if taken:
                trip = Trip(link, taken, self)
                trip.begin()
                return True
        except JustEnded as exc:
            if trip is not None:
                trip.abort(Verdict.NOT_READ, exc)
            return True
        except BaseException:
            # Ctrl-C in the thread of one that sends for all: they must not wait for it.
            error = ConnectError(link.address, "interrupted while sending")
            if trip is not None:
                trip.abort(Verdict.UNKNOWN, error)
            elif held == [True]:
                link.lane.release()
                for one in taken:
                    one.settle(Verdict.UNKNOWN, error)
            raise
        link.lane.release()
        return True

    def _take(self, link: Link, taken: list[Companion]) -> None:
        """Move those that may travel together from the queue to ``taken``."""
        size = 4
        try:
            while len(taken) < _MOST:
                one = self._queue.popleft()
                size += 4 + len(one.body)
                if taken and size > self._max_bytes:
                    self._queue.appendleft(one)
                    break
                one.link = link  # before the look: see withdraw()
                if not one.is_withdrawn:
                    taken.append(one)
        except IndexError:
            pass

    def _send_home(self) -> None:
        """No nsqd is there: each waits for one by itself."""
        reason = ConnectError("nsqd", "no nsqd is connected any more")
        while self._queue:
            try:
                one = self._queue.popleft()
            except IndexError:
                return
            one.settle(Verdict.NOT_READ, reason)
