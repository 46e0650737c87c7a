"""Whether a channel was seen empty: answers of nsqds in, a decision out. Pure.

The same decision serves ``drain()``, ``run_until_empty()`` and drains of the Spark source. NSQ's
TCP protocol does not say how many messages wait, so each nsqd is asked at its HTTP port. A question
without an answer is "unknown", never "empty".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

#: Answers in a row that say "empty". Between a queue and its messages in flight nsqd counts a
#: message nowhere for a moment, and no message is there twice.
EMPTY_ANSWERS = 2
#: Seconds after which nsqd has put deferred messages that are due back into the queue: it looks at
#: a new channel up to 5 s late.
DUE_TIME = 6.0
#: Seconds in which other threads may answer messages that a loop over drain() left open.
ANSWER_TIME = 2.0


class ChannelDepth(NamedTuple):
    """The channel's messages at one nsqd."""

    depth: int  #: waiting, also messages that the topic has not given to its channels yet
    in_flight: int  #: sent to a consumer, ours or another
    clients: int  #: connections of consumers
    deferred: int = 0  #: requeued or published with a delay that is not over
    is_paused: bool = False  #: the channel or its topic
    has_topic: bool = True

    @property
    def coming(self) -> int:
        """Waiting messages that will be sent to a consumer."""
        return 0 if self.is_paused else self.depth


class ChannelDepths(NamedTuple):
    """The channel's messages at all nsqds.

    An nsqd is named by its HTTP address if that is known, otherwise by its TCP address.
    """

    known: Mapping[str, ChannelDepth] = {}
    unknown: Mapping[str, str] = {}  #: an nsqd or an nsqlookupd -> why
    without_http: tuple[str, ...] = ()  #: TCP addresses of nsqds in ``unknown`` without HTTP
    is_topic_unknown: bool = False  #: every server has answered, and none has the topic

    @property
    def is_complete(self) -> bool:
        """Whether the depth of every nsqd is known."""
        return bool(self.known) and not self.unknown

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return sum(one.depth for one in self.known.values())

    @property
    def coming(self) -> int:
        """Waiting messages that will be sent to a consumer."""
        return sum(one.coming for one in self.known.values())

    @property
    def paused(self) -> int:
        """Waiting messages of a paused channel or topic."""
        return self.waiting - self.coming

    @property
    def in_flight(self) -> int:
        """Messages that are sent to a consumer."""
        return sum(one.in_flight for one in self.known.values())

    @property
    def deferred(self) -> int:
        """Deferred messages."""
        return sum(one.deferred for one in self.known.values())


class DrainRules(NamedTuple):
    """What one drain was asked for."""

    #: Seconds for which an nsqd may not answer, or its messages not come, before the drain fails.
    patience: float = 60.0
    #: Seconds without a message that end a drain if an nsqd cannot be asked; None: that fails.
    silence: float | None = None
    wait_deferred: bool = False
    is_loop: bool = False  #: the caller holds messages, and cannot answer them while it waits


class Step(enum.Enum):
    """The next step of a drain."""

    WAIT = enum.auto()
    FLUSH = enum.auto()  #: nothing more comes for now: handle a batch that is not full
    END = enum.auto()  #: the channel was seen empty; or silence, if some nsqd is unknown
    FAIL = enum.auto()  #: some nsqd is in the way for too long, see ``stuck``


class DrainDecision:
    """The answers of the nsqds in one drain, and the next step.

    Time counts from look to look, at most ``longest_look`` seconds each: in the rest the process
    was suspended, or busy.
    """

    def __init__(self, rules: DrainRules, longest_look: float) -> None:
        self._rules = rules
        self._longest = longest_look
        self.depths: ChannelDepths | None = None  #: the last answer
        self._looked: float | None = None
        self._waited = 0.0  # seconds in all; the next two are moments of it
        self._silent_since = self._last_message = 0.0
        #: An nsqd that is unknown or whose messages do not come -> since when.
        self._blocked: dict[str, float] = {}
        self._asked = self._changed = 0.0
        self._has_answered: set[str] = set()
        self._empty_answers = 0  # in a row, since the last change

    def look(self, now: float) -> float:
        """Return the seconds of waiting since the last look. Call it before the others."""
        seconds = min(now - (now if self._looked is None else self._looked), self._longest)
        self._looked = now
        self._waited += seconds
        return seconds

    def on_change(self, now: float, *, is_message: bool = False) -> None:
        """A message came, or a connection was made or lost: older answers do not count."""
        self._changed, self._empty_answers = now, 0
        self._silent_since = self._waited
        if is_message:
            self._last_message = self._waited

    def on_answer(self, asked: float, depths: ChannelDepths, own: int = 0) -> bool:
        """Record the answers to a question that was asked at a time; return whether they are new.

        Args:
            own: messages that this consumer has not answered.
        """
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
        self._empty_answers = self._empty_answers + 1 if self._is_empty(depths, own) else 0
        return True

    def decide(self, own: int, quiet: float, are_all_connected: bool = True) -> Step:
        """Return the next step of a drain. Call it while no message waits for a worker.

        Args:
            own: messages that this consumer has not answered.
            quiet: seconds for which every connection had RDY to spare and no message came.
            are_all_connected: there is a connection to each nsqd to which there was one.
        """
        rules, depths = self._rules, self.depths
        if depths is None:
            return Step.WAIT
        is_answer = self._asked > self._changed
        is_open = own > 0 and self._waited - self._silent_since < ANSWER_TIME
        is_empty = self._is_empty(depths, own)
        if (
            is_answer and depths.unknown and rules.silence is not None and quiet >= rules.silence
            and are_all_connected and is_empty and not is_open and (rules.is_loop or not own)
            # An nsqd that has answered once is expected to answer again.
            and self._has_answered.isdisjoint(depths.unknown)
        ):
            return Step.END
        if self.stuck(quiet):
            return Step.FAIL
        if not is_answer or depths.coming or not (depths.known or depths.unknown):
            return Step.WAIT
        if own and not rules.is_loop:
            return Step.FLUSH
        is_due = depths.deferred and self._asked - self._changed < DUE_TIME
        if depths.unknown or not is_empty or is_open or is_due:
            return Step.WAIT
        return Step.END if self._empty_answers >= EMPTY_ANSWERS else Step.WAIT

    def stuck(self, quiet: float) -> list[str]:
        """Say which nsqds have been unknown, or kept their messages, for longer than the patience.

        ``quiet`` is as in ``decide``.
        """
        depths, found = self.depths or ChannelDepths(), []
        for address, since in self._blocked.items():
            seconds = self._waited - max(since, self._last_message)
            why = depths.unknown.get(address)
            if why is None:
                seconds = min(seconds, quiet)
                why = f"{depths.known[address].coming} wait and do not come"
            if seconds >= self._rules.patience:
                found.append(f"{address}: {why}")
        return found

    def _is_empty(self, depths: ChannelDepths, own: int) -> bool:
        """Whether no nsqd that has answered has a message that the drain waits for."""
        others = depths.in_flight - (own if self._rules.is_loop else 0)
        return others <= 0 and not (
            depths.coming or self._rules.wait_deferred and depths.deferred)
