"""``Watchdog``: replaces a connection on which nsqd counts more messages than it has sent.

Behaviour of nsqd 1.3.0: after a SIGKILL it reads messages from its disk queue twice. If the second
copy is sent while the first is in flight, the connection's ``in_flight_count`` stays too high for
ever, and from then on a small RDY delivers nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable

from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.starvation import Observed, StarvationWatch
from nsqclient.consumer.subscription import Subscription
from nsqclient.display import counted
from nsqclient.errors import NSQError
from nsqclient.log_records import log_fields

#: Seconds between two looks.
_INTERVAL = 1.0
#: Seconds between two looks at a connection that is being replaced.
_RETIRE_INTERVAL = 0.1


class Watchdog:
    """Watches the connections of one consumer. Threads: any.

    Args:
        fetch_depth: returns how many messages wait for the consumer at the nsqd of a connection;
            None if that is unknown. May block; called on a background thread.
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
        self._watch = StarvationWatch(2 * _INTERVAL)
        self._is_asking = False
        #: When each nsqd's connection was replaced last, on time.monotonic().
        self._replaced_at: dict[Hashable, float] = {}

    def start(self) -> None:
        """Begin to look. After the timer was started."""
        self._timer.schedule(_INTERVAL, self._look)

    def _replace_miscounted(self, sub: Subscription) -> None:
        """Replace a connection on which nsqd has counted a message twice."""
        message, before = sub.delivered_twice, self._replaced_at.get(sub.place, -math.inf)
        if message is not None and time.monotonic() - before >= sub.msg_timeout:
            self._replace(
                sub, f"nsqd has delivered message {message.id} twice as attempt {message.attempts},"
                " as it does after it was killed, and counts both: it would deliver nothing soon")

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

    def _check(self, silent: list[Subscription]) -> None:
        """Ask the silent nsqds what waits there, and replace connections. Blocks."""
        try:
            for sub in silent:
                received = sub.counters.received
                depth = self._fetch_depth(sub)
                testing = self._flow.phase is Phase.TESTING
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
        """Close a connection after its last message; then it is dialed again. Never blocks.

        First the messages in flight are finished: nsqd would deliver their copies to the new
        connection, and count them there.
        """
        if sub.is_retired:
            return
        sub.is_retired = True
        self._replaced_at[sub.place] = time.monotonic()
        self._log.warning("%s: %s: the connection is replaced", sub.place, reason,
                          extra=log_fields(nsqd=sub.address))
        self._flow.retire(sub)
        try:
            if not sub.conn.send(lambda core: core.send_cls(), waits=False):
                self._context.run_in_background(sub.flush_rest)
        except NSQError as exc:
            self._log.debug("%s: CLS not sent: %s", sub.place, exc,
                            extra=log_fields(nsqd=sub.address))
        self._timer.schedule(_RETIRE_INTERVAL, lambda: self._end_retired(sub))

    def _end_retired(self, sub: Subscription) -> None:
        if sub.is_lost:
            return
        if sub.count_in_flight(time.monotonic()):
            self._timer.schedule(_RETIRE_INTERVAL, lambda: self._end_retired(sub))
        else:
            sub.conn.close("replaced by another connection")
