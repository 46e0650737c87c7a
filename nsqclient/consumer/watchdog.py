"""``Watchdog``: replaces a connection on which nsqd counts more messages than it has sent.

Behaviour of nsqd 1.3.0: after a SIGKILL it reads messages from its disk queue twice. If the second
copy is sent while the first is in flight, the connection's ``in_flight_count`` stays too high for
ever, and from then on a small RDY delivers nothing. nsqd reports no error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.log_records import log_fields

#: Seconds between two looks.
_INTERVAL = 1.0
#: Seconds between two looks at a connection that is being replaced.
_RETIRE_INTERVAL = 0.1
#: Maximum patience with a silent nsqd, in units of msg_timeout. It doubles with each replacement.
_LONGEST_PATIENCE = 32


class Observed(NamedTuple):
    """One connection at the time of a look."""

    connection: object
    received: int  #: messages that have arrived on it
    rdy: int
    in_flight: int
    msg_timeout: float


@dataclass
class _Silence:
    connection: object = None
    received: int = 0
    seconds: float = 0.0  # with RDY above 0, nothing in flight, and no message
    patience: int = 1  # in units of msg_timeout


class SilenceWatch:
    """Measures how long each nsqd has been silent. Does no I/O. Not thread-safe.

    At most ``longest_look`` seconds count between two looks. A longer pause means that this process
    was suspended or busy.
    """

    def __init__(self, longest_look: float) -> None:
        self._longest_look = longest_look
        self._looked: float | None = None
        self._silences: dict[Hashable, _Silence] = {}

    def look(self, now: float, seen: Mapping[Hashable, Observed]) -> list[Hashable]:
        """Return the keys of the nsqds that have been silent for too long."""
        waited = 0.0 if self._looked is None else min(now - self._looked, self._longest_look)
        self._looked = now
        # The patience with an nsqd is kept while its connection is replaced.
        self._silences = {key: silence for key, silence in self._silences.items()
                          if key in seen or silence.patience > 1}
        found = []
        for key, one in seen.items():
            silence = self._silences.setdefault(key, _Silence())
            if one.connection is not silence.connection:
                silence.connection, silence.received, silence.seconds = one.connection, 0, 0.0
            if one.received != silence.received:
                silence.received, silence.patience, silence.seconds = one.received, 1, 0.0
            elif one.rdy <= 0 or one.in_flight:
                silence.seconds = 0.0
            else:
                silence.seconds += waited
                if silence.seconds >= one.msg_timeout * silence.patience:
                    found.append(key)
        return found

    def reset(self, key: Hashable, *, replaced: bool = False) -> None:
        """Count again from 0: no message waits at this nsqd, or its connection was replaced."""
        silence = self._silences.get(key)
        if silence is not None:
            silence.seconds = 0.0
            if replaced:
                silence.patience = min(2 * silence.patience, _LONGEST_PATIENCE)


class Watchdog:
    """Watches the connections of one consumer. Threads: any.

    Args:
        fetch_depth: returns the number of messages that wait for the consumer at the nsqd of a
            connection, or None if unknown. May block. Called on a background thread.
    """

    def __init__(
        self, context: ConsumerContext, flow: FlowControl[Subscription],
        fetch_depth: Callable[[Subscription], int | None],
    ) -> None:
        self._context = context
        self._log = context.log
        self._timer = context.timer
        self._flow = flow
        self._fetch_depth = fetch_depth
        self._watch = SilenceWatch(2 * _INTERVAL)
        self._is_asking = False
        #: When each nsqd's connection was last replaced, on time.monotonic().
        self._replaced_at: dict[Hashable, float] = {}

    def start(self) -> None:
        """Schedule the first look. The timer must be running."""
        self._timer.schedule(_INTERVAL, self._look)

    def _look(self) -> None:
        """Look at all connections. On the timer thread."""
        self._timer.schedule(_INTERVAL, self._look)
        now = time.monotonic()
        seen: dict[Hashable, Observed] = {}
        subs = []
        for sub, rdy in self._flow.rdy_by_connection().items():
            if sub.is_watched and not sub.is_retired:
                self._replace_miscounted(sub)
                subs.append(sub)
                seen[sub.place] = Observed(
                    sub, sub.counters.received, rdy, sub.count_in_flight(now), sub.msg_timeout)
        silent = self._watch.look(now, seen)
        if silent and not self._is_asking:
            self._is_asking = True
            self._context.run_in_background(
                lambda: self._check([sub for sub in subs if sub.place in silent]))

    def _replace_miscounted(self, sub: Subscription) -> None:
        """Replace a connection on which nsqd has counted a message twice."""
        message, before = sub.delivered_twice, self._replaced_at.get(sub.place, -math.inf)
        if message is not None and time.monotonic() - before >= sub.msg_timeout:
            self._replace(
                sub, f"nsqd has delivered message {message.id} twice as attempt {message.attempts},"
                " as it does after it was killed, and counts both: it would deliver nothing soon")

    def _check(self, silent: list[Subscription]) -> None:
        """Ask the silent nsqds for the depth, and replace starved connections. Blocks."""
        try:
            for sub in silent:
                received = sub.counters.received
                depth = self._fetch_depth(sub)
                testing = self._flow.backoff.phase is Phase.TESTING
                is_starved = testing if depth is None else depth > 0
                if is_starved and sub.counters.received == received:
                    waiting = (
                        "the test that ends the backoff has got no message" if depth is None
                        else f"{counted(depth, 'message')} {'waits' if depth == 1 else 'wait'}"
                        " there")
                    self._replace(
                        sub, f"nsqd has delivered nothing for {sub.msg_timeout:g} s or longer,"
                        f" although RDY allows it and {waiting}")
                self._watch.reset(sub.place, replaced=is_starved)
        finally:
            self._is_asking = False

    def _replace(self, sub: Subscription, reason: str) -> None:
        """Close a connection once its messages are answered; it is then dialed again. Never blocks.

        The messages in flight are finished first. nsqd would otherwise deliver their copies to the
        new connection, and count them there.
        """
        if sub.is_retired:
            return
        sub.is_retired = True
        self._replaced_at[sub.place] = time.monotonic()
        self._log.warning("%s: %s: the connection is replaced", sub.place, reason,
                          extra=log_fields(nsqd=sub.address))
        self._flow.retire(sub)
        sub.post_cls()
        self._timer.schedule(_RETIRE_INTERVAL, lambda: self._end_retired(sub))

    def _end_retired(self, sub: Subscription) -> None:
        if sub.is_lost:
            return
        if sub.count_in_flight(time.monotonic()):
            self._timer.schedule(_RETIRE_INTERVAL, lambda: self._end_retired(sub))
        else:
            sub.conn.close("replaced by another connection")
