"""``Watchdog``: replaces a connection on which nsqd counts more messages than it has sent.

Behaviour of nsqd 1.3.0: after a SIGKILL it reads messages from its disk queue twice. If the second
copy is sent while the first is in flight, the connection's ``in_flight_count`` stays too high for
ever, and from then on a small RDY delivers nothing. nsqd reports no error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.log_records import log_fields

_INTERVAL = 1.0
#: Seconds between two checks of a connection that is being replaced.
_RETIRE_INTERVAL = 0.1

_MOST_DOUBLINGS = 4

K = TypeVar("K")


class Observed(NamedTuple):
    received: int  #: messages that have arrived on the connection
    rdy: int
    in_flight: int
    patience: float  #: seconds without a message after which it is silent


class SilenceWatch(Generic[K]):
    """Finds connections on which no message arrives. Does no I/O. Not thread-safe.

    Between two calls of ``look()`` at most ``longest_look`` seconds count as silence, because this
    process may have been suspended.
    """

    def __init__(self, longest_look: float) -> None:
        self._longest_look = longest_look
        self._looked: float | None = None
        #: Connection -> number of messages received, and seconds since the last message during
        #: which RDY was above 0 and no message was in flight.
        self._silent: dict[K, tuple[int, float]] = {}

    def look(self, now: float, seen: Mapping[K, Observed]) -> list[K]:
        """Return the connections silent for longer than their patience, and reset their count."""
        waited = 0.0 if self._looked is None else min(now - self._looked, self._longest_look)
        self._looked = now
        former, self._silent = self._silent, {}
        for key, one in seen.items():
            received, seconds = former.get(key, (0, 0.0))
            is_silent = one.received == received and one.rdy > 0 and not one.in_flight
            self._silent[key] = one.received, seconds + waited if is_silent else 0.0
        found = [key for key, one in seen.items() if self._silent[key][1] >= one.patience]
        for key in found:
            self._silent[key] = seen[key].received, 0.0
        return found


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
        self._watch: SilenceWatch[Subscription] = SilenceWatch(2 * _INTERVAL)
        self._is_asking = False
        #: nsqd -> silent connections replaced since its last message. Each replacement doubles the
        #: patience, because the connections of an empty channel are silent, too.
        self._replacements: dict[Hashable, int] = {}
        #: nsqd -> time of the last replacement, on time.monotonic().
        self._replaced_at: dict[Hashable, float] = {}

    def start(self) -> None:
        self._timer.schedule(_INTERVAL, self._look)

    def _look(self) -> None:
        self._timer.schedule(_INTERVAL, self._look)
        now = time.monotonic()
        seen = {}
        for sub, rdy in self._flow.rdy_by_connection().items():
            if sub.is_watched and not sub.is_retired:
                self._replace_miscounted(sub)
                if sub.counters.received:
                    self._replacements.pop(sub.place, None)
                patience = sub.msg_timeout * 2 ** self._replacements.get(sub.place, 0)
                seen[sub] = Observed(
                    sub.counters.received, rdy, sub.count_in_flight(now), patience)
        silent = [] if self._is_asking else self._watch.look(now, seen)
        if silent:
            self._is_asking = True
            self._context.run_in_background(lambda: self._check(silent))

    def _replace_miscounted(self, sub: Subscription) -> None:
        message, before = sub.delivered_twice, self._replaced_at.get(sub.place, -math.inf)
        if message is not None and time.monotonic() - before >= sub.msg_timeout:
            self._replace(
                sub, f"nsqd has delivered message {message.id} twice as attempt {message.attempts},"
                " as it does after a SIGKILL, and counts both: it would soon stop delivering")

    def _check(self, silent: list[Subscription]) -> None:
        """Ask the silent nsqds for the depth, and replace starved connections. Blocks."""
        try:
            for sub in silent:
                received = sub.counters.received
                depth = self._fetch_depth(sub)
                testing = self._flow.backoff.phase is Phase.TESTING
                is_starved = testing if depth is None else depth > 0
                if is_starved and sub.counters.received == received:
                    count = self._replacements.get(sub.place, 0)
                    self._replacements[sub.place] = min(count + 1, _MOST_DOUBLINGS)
                    waiting = (
                        "the test that ends the backoff has received no message" if depth is None
                        else f"{counted(depth, 'message')} {'waits' if depth == 1 else 'wait'}"
                        " there")
                    self._replace(
                        sub, f"nsqd has delivered nothing for {sub.msg_timeout:g} s or longer,"
                        f" although RDY allows it and {waiting}")
        finally:
            self._is_asking = False

    def _replace(self, sub: Subscription, reason: str) -> None:
        """Close a connection once its messages are answered, after msg_timeout at the latest.

        nsqd would otherwise deliver copies of them to the new connection, and count them there.
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
        now = time.monotonic()
        if sub.count_in_flight(now) and now < self._replaced_at[sub.place] + sub.msg_timeout:
            self._timer.schedule(_RETIRE_INTERVAL, lambda: self._end_retired(sub))
        else:
            sub.conn.close("replaced by another connection")
