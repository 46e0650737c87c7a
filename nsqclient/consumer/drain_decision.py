"""Whether a channel was seen empty: what each nsqd said in, a decision out. Pure.

The same decision serves ``drain()``, ``run_until_empty()`` and drains of the Spark source. NSQ's
TCP protocol has no answer that says how many messages wait, so each nsqd is asked at its HTTP port.
A question without an answer is "unknown", never "empty".
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

#: Answers in a row that say "empty". Between a queue and its messages in flight nsqd counts a
#: message nowhere for a moment, and no message is there twice.
EMPTY_ANSWERS = 2
#: Seconds after which nsqd has surely put back into the queue what is due among deferred messages:
#: it looks at a new channel up to 5 s late.
DUE_TIME = 6.0
#: Seconds in which other threads may answer messages that a loop over drain() left open.
ANSWER_TIME = 2.0


class ChannelDepth(NamedTuple):
    """The channel's messages at one nsqd."""

    depth: int  #: waiting, those that the topic has not given to its channels yet included
    in_flight: int  #: sent to a consumer, ours or another
    clients: int  #: connections of consumers
    deferred: int = 0  #: requeued or published with a delay that is not over
    is_paused: bool = False  #: the channel or its topic
    has_topic: bool = True

    @property
    def coming(self) -> int:
        """Those of ``depth`` that are sent to a consumer."""
        return 0 if self.is_paused else self.depth


class ChannelDepths(NamedTuple):
    """The channel's messages at all nsqds, as far as they are known.

    An nsqd is named by its HTTP address if that is known, else by its TCP address.
    """

    known: Mapping[str, ChannelDepth] = {}
    unknown: Mapping[str, str] = {}  #: an nsqd or an nsqlookupd -> why
    #: TCP addresses of nsqds that cannot be asked, since they have no HTTP address that is known;
    #: all of them are in ``unknown``, too
    without_http: tuple[str, ...] = ()
    is_topic_unknown: bool = False  #: everything that was asked has answered: no such topic

    @property
    def is_complete(self) -> bool:
        """Return whether the depth of every nsqd is known."""
        return bool(self.known) and not self.unknown

    @property
    def waiting(self) -> int:
        """Messages that wait, where it is known."""
        return sum(one.depth for one in self.known.values())

    @property
    def coming(self) -> int:
        """Those of ``waiting`` that are sent to a consumer."""
        return sum(one.coming for one in self.known.values())

    @property
    def paused(self) -> int:
        """Those of ``waiting`` that do not come, since their channel or topic is paused."""
        return self.waiting - self.coming

    @property
    def in_flight(self) -> int:
        """Messages that are sent to a consumer, where it is known."""
        return sum(one.in_flight for one in self.known.values())

    @property
    def deferred(self) -> int:
        """Deferred messages, where it is known."""
        return sum(one.deferred for one in self.known.values())


class DrainRules(NamedTuple):
    """What one drain was asked for."""

    #: Seconds for which an nsqd may not answer, or its messages not come, before the drain fails.
    patience: float = 60.0
    #: Seconds without a message that are the end where no nsqd can be asked; None: that fails.
    silence: float | None = None
    wait_deferred: bool = False
    #: Messages in flight are held by the caller, which cannot answer them while it waits.
    is_loop: bool = False


class Step(enum.Enum):
    """What a drain does next."""

    WAIT = enum.auto()
    FLUSH = enum.auto()  #: no more comes for now: handle a batch that is not full
    END = enum.auto()  #: the channel was seen empty; by silence, where some nsqd is unknown
    FAIL = enum.auto()  #: some nsqd is in the way for too long, see ``stuck``


class DrainDecision:
    """What the nsqds have said in one drain, and what follows.

    Seconds of waiting are those between two looks, and of these so many at most: in the rest the
    process was suspended, or busy.

    Args:
        longest_look: the most seconds between two looks that count.
    """

    def __init__(self, rules: DrainRules, longest_look: float) -> None:
        self._rules = rules
        self._longest = longest_look
        self.depths: ChannelDepths | None = None  #: the last answer
        self._looked: float | None = None
        self._waited = 0.0  # seconds of waiting in all; the next ones are moments of it
        self._silent_since = self._last_message = 0.0
        #: What is unknown, or has messages that do not come -> since when.
        self._blocked: dict[str, float] = {}
        self._asked = self._changed = 0.0
        self._has_answered: set[str] = set()
        self._empty_answers = 0  # in a row, since the last change

    def look(self, now: float) -> float:
        """Return the seconds of waiting since the last look. Call it before the others."""
        before = now if self._looked is None else self._looked
        seconds = min(now - before, self._longest)
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
        """The nsqds were asked at a time, and this came of it; return whether it is news.

        Args:
            own: messages that this consumer has not answered.
        """
        if asked == self._asked:
            return False
        former = () if self.depths is None else self.depths.unknown
        if set(depths.unknown) != set(former):  # what answers again may have been restarted
            self._changed, self._empty_answers = asked, 0
        self._asked, self.depths = asked, depths
        blocked = {*depths.unknown, *(
            address for address, one in depths.known.items() if one.coming)}
        self._blocked = {one: self._blocked.get(one, self._waited) for one in blocked}
        self._has_answered.update(depths.known)
        self._empty_answers = self._empty_answers + 1 if self._is_empty(depths, own) else 0
        return True

    def decide(self, own: int, quiet: float, are_all_connected: bool = True) -> Step:
        """Return what a drain does next. At a moment at which no message waits for a worker.

        Args:
            own: messages that this consumer has not answered.
            quiet: seconds for which each connection had RDY to spare and no message; the least.
            are_all_connected: there is a connection to each nsqd to which there was one.
        """
        rules, depths = self._rules, self.depths
        if depths is None:
            return Step.WAIT
        is_answer = self._asked > self._changed
        # Other threads may answer what a loop left open.
        is_open = own > 0 and self._waited - self._silent_since < ANSWER_TIME
        is_empty = self._is_empty(depths, own)
        if (
            is_answer and depths.unknown and rules.silence is not None and quiet >= rules.silence
            and are_all_connected and is_empty
            # After an answer another one is expected.
            and self._has_answered.isdisjoint(depths.unknown)
            and not is_open and (rules.is_loop or not own)
        ):
            return Step.END
        if self.stuck(quiet):
            return Step.FAIL
        if not is_answer or depths.coming or not (depths.known or depths.unknown):
            return Step.WAIT
        if own and not rules.is_loop:
            return Step.FLUSH
        if depths.unknown or not is_empty or is_open:
            return Step.WAIT
        if depths.deferred and self._asked - self._changed < DUE_TIME:
            return Step.WAIT  # some may be due
        return Step.END if self._empty_answers >= EMPTY_ANSWERS else Step.WAIT

    def stuck(self, quiet: float) -> list[str]:
        """Say which nsqds are in the way for longer than the patience; ``quiet``: see ``decide``.

        That is so where an nsqd is unknown, or where its messages wait and none comes.
        """
        if self.depths is None:
            return []
        found = []
        for address, since in self._blocked.items():
            seconds = self._waited - max(since, self._last_message)
            why = self.depths.unknown.get(address)
            if why is None:
                seconds = min(seconds, quiet)
                why = f"{self.depths.known[address].coming} wait and do not come"
            if seconds >= self._rules.patience:
                found.append(f"{address}: {why}")
        return found

    def _is_empty(self, depths: ChannelDepths, own: int) -> bool:
        """Return whether the nsqds that have answered have nothing left that is waited for."""
        others = depths.in_flight - (own if self._rules.is_loop else 0)
        return others <= 0 and not (
            depths.coming or self._rules.wait_deferred and depths.deferred)
