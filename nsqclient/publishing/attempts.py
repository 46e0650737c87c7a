"""``Attempt``: one try of a publish that a thread waits for."""

from __future__ import annotations

import threading

from nsqclient.connection import Connection
from nsqclient.errors import NSQError
from nsqclient.publishing.link import Link
from nsqclient.publishing.verdicts import Verdict
from nsqclient.runtime.bell import Bell


class Attempt:
    """One try of one publish on one connection; the token that the core hands back.

    One thread waits, another settles it: a plain lock is the cheapest one-shot signal.
    """

    __slots__ = ("verdict", "error", "link", "is_done", "_settled")

    def __init__(self) -> None:
        self.verdict = Verdict.UNKNOWN
        self.error: NSQError | None = None
        self.link: Link | None = None  #: the nsqd that it was given to
        self.is_done = False
        self._settled = threading.Lock()
        self._settled.acquire()

    def settle(self, verdict: Verdict, error: NSQError | None = None) -> None:
        """Set the outcome and wake the waiter."""
        self.set(verdict, error)
        self.wake()

    def set(self, verdict: Verdict, error: NSQError | None) -> None:
        """Set the outcome; ``wake()`` comes next."""
        if not self.is_done:  # else by a thread that a signal handler interrupted afterwards
            self.verdict = verdict
            self.error = error
            self.is_done = True

    def wake(self) -> None:
        """Wake the waiter."""
        # Not locked: it was settled before, in a thread that a signal handler interrupted. Two
        # threads never settle one at the same time.
        if self._settled.locked():
            self._settled.release()

    def is_settled(self) -> bool:
        """Tell whether the outcome is there."""
        return self.is_done

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is settled; False when it was not in time."""
        return self._settled.acquire(timeout=-1 if timeout is None else timeout)


class Companion(Attempt):
    """The try of a message that may travel together with others to the same topic.

    Its thread sleeps at the bell, and may be woken for other reasons than the outcome.
    """

    __slots__ = (
        "topic", "body", "bell", "is_withdrawn", "is_waiting", "has_turn", "receives_from"
    )

    def __init__(self, topic: str, body: bytes, bell: Bell) -> None:
        # As Attempt's, without its lock; a call of it would cost as much as the fields.
        self.verdict = Verdict.UNKNOWN
        self.error = None
        self.link = None
        self.is_done = False
        self.topic = topic
        self.body = body
        self.bell = bell
        self.is_withdrawn = False
        self.is_waiting = False  # by WakingLine, as the next
        self.has_turn = False  #: it was the next to be woken, so it is to wake the one after it
        #: It is to receive for all of its trip, there.
        self.receives_from: Connection | None = None

    def wake(self) -> None:
        """Wake the waiter."""
        self.bell.ring()

    def withdraw(self) -> bool:
        """Its time is over; False when it was taken to be sent.

        Without a lock: who takes it sets ``link`` and looks here afterwards, and here it is the
        other way round. So at least one sees the other; it is never sent after True.
        """
        self.is_withdrawn = True
        return self.link is None
