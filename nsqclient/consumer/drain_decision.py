"""Decides whether a channel was seen empty, from the answers of its nsqds. Does no I/O.

NSQ's TCP protocol does not report how many messages wait, so each nsqd is asked at its HTTP port. A
question without an answer is "unknown", never "empty".
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

#: Consecutive "empty" answers that end a drain. For a moment nsqd does not count a message that it
#: moves from the queue to the messages in flight.
EMPTY_ANSWERS = 2
#: Seconds within which nsqd requeues due messages. It looks at a new channel up to 5 s late.
DUE_TIME = 6.0
#: Seconds that other threads have to answer messages that a loop over drain() left open.
ANSWER_TIME = 2.0


class ChannelDepth(NamedTuple):
    """The channel's messages at one nsqd."""

    depth: int  #: waiting, including messages that the topic has not given to its channels yet
    in_flight: int  #: sent to any consumer
    clients: int  #: connections of consumers
    deferred: int = 0  #: requeued or published with a delay that is not over
    is_paused: bool = False  #: the channel or its topic
    has_topic: bool = True

    @property
    def coming(self) -> int:
        """Waiting messages that will be sent to a consumer."""
        return 0 if self.is_paused else self.depth


class ChannelDepths(NamedTuple):
    """The channel's messages at all nsqds, by TCP address, or by a part of the topic."""

    known: Mapping[str, ChannelDepth] = {}
    unknown: Mapping[str, str] = {}  #: an nsqd or an nsqlookupd -> why
    without_http: tuple[str, ...] = ()  #: TCP addresses of nsqds in ``unknown`` without HTTP
    is_topic_unknown: bool = False  #: every server has answered, and none has the topic

    @property
    def is_complete(self) -> bool:
        return bool(self.known) and not self.unknown

    @property
    def waiting(self) -> int:
        return sum(one.depth for one in self.known.values())

    @property
    def coming(self) -> int:
        return sum(one.coming for one in self.known.values())

    @property
    def paused(self) -> int:
        """Waiting messages of a paused channel or topic."""
        return self.waiting - self.coming

    @property
    def in_flight(self) -> int:
        return sum(one.in_flight for one in self.known.values())

    @property
    def deferred(self) -> int:
        return sum(one.deferred for one in self.known.values())


class DrainRules(NamedTuple):
    """The options of one drain."""

    #: Seconds after which a drain fails if an nsqd does not answer, or its messages do not arrive.
    patience: float = 60.0
    #: Seconds without a message that end a drain if an nsqd cannot be asked; None: it fails.
    silence: float | None = None
    wait_deferred: bool = False
    is_loop: bool = False  #: the caller holds messages and cannot answer them while it waits


class Step(enum.Enum):
    WAIT = enum.auto()
    FLUSH = enum.auto()  #: handle an incomplete batch: no more messages arrive for now
    END = enum.auto()  #: the channel was seen empty, or was silent while some nsqd is unknown
    FAIL = enum.auto()  #: an nsqd has blocked the drain for too long, see ``stuck``


class DrainDecision:
    """The connections and answers of one drain, and the next step.

    Args:
        longest_look: maximum seconds that count between two checks. A longer pause means that the
            process was suspended or busy.
    """

    def __init__(self, rules: DrainRules, longest_look: float) -> None:
        self._rules = rules
        self._longest = longest_look
        self.depths: ChannelDepths | None = None  #: the last answers
        self.own = 0  #: messages that this consumer has not answered
        self._looked: float | None = None
        self._waited = 0.0  # total seconds of waiting, without times of suspension
        self._silent_since = 0.0  # value of it when a message arrived last
        #: Connection -> (when its last message arrived, seconds for which it has been quiet).
        self._quiet: dict[Hashable, tuple[float, float]] = {}
        #: nsqds that are unknown or whose messages do not arrive -> since when, as _waited.
        #: Restarts with each message.
        self._blocked: dict[str, float] = {}
        self._asked = self._changed = 0.0
        self._has_answered: set[str] = set()
        self._empty_answers = 0  # consecutive, since the last change

    @property
    def quiet(self) -> float:
        """The seconds for which every connection had unused RDY and no message arrived."""
        return min((seconds for _, seconds in self._quiet.values()), default=float("inf"))

    def look(
        self, now: float, connections: Mapping[Any, tuple[float, bool]], own: int = 0
    ) -> None:
        """Note the state of the connections. Call it before the other methods.

        Args:
            connections: each one with the time of its last message, and whether it has unused RDY.
        """
        seconds = 0.0 if self._looked is None else min(now - self._looked, self._longest)
        self._looked, self.own = now, own
        self._waited += seconds
        quiet: dict[Hashable, tuple[float, float]] = {}
        is_new_message = False
        for one, (last, has_spare) in connections.items():
            former, so_far = self._quiet.get(one, (last, 0.0))
            quiet[one] = last, (so_far + seconds * has_spare if last == former else 0.0)
            is_new_message = is_new_message or last != former
        if is_new_message:
            self._blocked = dict.fromkeys(self._blocked, self._waited)
        if is_new_message or quiet.keys() != self._quiet.keys():  # earlier answers are now invalid
            self._changed, self._empty_answers = now, 0
            self._silent_since = self._waited
        self._quiet = quiet

    def on_answer(self, asked: float, depths: ChannelDepths) -> bool:
        """Record the answers to the query made at ``asked``. Returns True if they are new."""
        if asked == self._asked:
            return False
        former = () if self.depths is None else self.depths.unknown
        if set(depths.unknown) != set(former):  # an nsqd that answers again may have been restarted
            self._changed, self._empty_answers = asked, 0
        self._asked, self.depths = asked, depths
        coming = [address for address, one in depths.known.items() if one.coming]
        self._blocked = {one: self._blocked.get(one, self._waited)
                         for one in (*depths.unknown, *coming)}
        self._has_answered.update(depths.known)
        self._empty_answers = self._empty_answers + 1 if self._is_empty(depths) else 0
        return True

    def decide(self, are_all_connected: bool = True) -> Step:
        """Return the next step. Call it while no message waits for a worker."""
        rules, depths, own = self._rules, self.depths, self.own
        if depths is None:
            return Step.WAIT
        is_answer = self._asked > self._changed
        is_open = own > 0 and self._waited - self._silent_since < ANSWER_TIME
        is_empty = self._is_empty(depths)
        if (
            is_answer and depths.unknown and rules.silence is not None
            and self.quiet >= rules.silence
            and are_all_connected and is_empty and not is_open and (rules.is_loop or not own)
            # An nsqd that has answered once is expected to answer again.
            and self._has_answered.isdisjoint(depths.unknown)
        ):
            return Step.END
        if self.stuck():
            return Step.FAIL
        if not is_answer or depths.coming or not (depths.known or depths.unknown):
            return Step.WAIT
        if own and not rules.is_loop:
            return Step.FLUSH
        is_due = depths.deferred and self._asked - self._changed < DUE_TIME
        if depths.unknown or not is_empty or is_open or is_due:
            return Step.WAIT
        return Step.END if self._empty_answers >= EMPTY_ANSWERS else Step.WAIT

    def stuck(self) -> list[str]:
        """Describe the nsqds that have blocked the drain for longer than the patience."""
        depths, found = self.depths or ChannelDepths(), []
        for address, since in self._blocked.items():
            seconds = self._waited - since
            why = depths.unknown.get(address)
            if why is None:
                seconds = min(seconds, self.quiet)
                why = f"{depths.known[address].coming} wait and do not arrive"
            if seconds >= self._rules.patience:
                found.append(f"{address}: {why}")
        return found

    def _is_empty(self, depths: ChannelDepths) -> bool:
        """True if no nsqd that has answered has a message that the drain waits for."""
        others = depths.in_flight - (self.own if self._rules.is_loop else 0)
        return others <= 0 and not (
            depths.coming or self._rules.wait_deferred and depths.deferred)
