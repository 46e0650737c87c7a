"""Whether a channel was seen empty: what each nsqd said in, a decision out. Pure.

The same decision serves ``drain()``, ``run_until_empty()`` and drains of the Spark source. NSQ's
TCP protocol has no answer that says how many messages wait, so each nsqd is asked at its HTTP port.
A question without an answer is "unknown", never "empty".
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from nsqclient.runtime.deadline import Silence

if TYPE_CHECKING:
    from nsqclient.http.channel_depth import ChannelDepth, ChannelDepths

#: Answers in a row that say "empty". Between a queue and its messages in flight nsqd counts a
#: message nowhere for a moment, and no message is there twice.
EMPTY_ANSWERS = 2
#: Seconds after which nsqd has surely put back into the queue what is due among deferred messages:
#: it looks at a new channel up to 5 s late.
DUE_TIME = 6.0
#: Seconds in which other threads may answer messages that a loop over drain() left open.
ANSWER_TIME = 2.0


class DrainRules(NamedTuple):
    """What one drain was asked for."""

    #: Seconds for which an nsqd may not answer, or its messages not come, before the drain fails.
    patience: float = 60.0
    #: Seconds without a message that are the end where no nsqd can be asked; None: that fails.
    silence: float | None = None
    wait_deferred: bool = False
    #: Messages in flight are held by the caller, which cannot answer them while it waits.
    is_loop: bool = False


class Seen(enum.Enum):
    """What is known of the channel at one nsqd."""

    NEVER_ASKED = enum.auto()  #: not since something changed
    KNOWN = enum.auto()
    UNKNOWN = enum.auto()  #: it was asked and did not answer


class NsqdState(NamedTuple):
    """One nsqd that counts, at one moment."""

    address: str
    seen: Seen
    waiting: int = 0  #: messages that wait, and are not paused
    in_flight: int = 0  #: at anyone
    deferred: int = 0
    #: Seconds for which it is unknown, or its messages wait and none has come.
    stuck: float = 0.0
    has_answered: bool = False  #: at any time in this drain
    has_http: bool = True  #: its HTTP address is known


class DrainState(NamedTuple):
    """What is known at one moment at which no message waits for a worker."""

    nsqds: tuple[NsqdState, ...] = ()
    is_topic_unknown: bool = False  #: everyone says so, and there never was a connection
    own: int = 0  #: messages that this consumer has not answered
    silence: float = 0.0  #: seconds of waiting without a message
    #: Seconds for which each connection had RDY to spare and no message; the least of them.
    quiet: float = 0.0
    are_all_connected: bool = True  #: each nsqd to which there was a connection
    settled: float = 0.0  #: seconds from the last change to the last answer
    empty_answers: int = 0  #: in a row, since the last change


class Step(enum.Enum):
    """What a drain does next."""

    WAIT = enum.auto()
    FLUSH = enum.auto()  #: no more comes for now: handle a batch that is not full
    END = enum.auto()  #: the channel was seen empty
    END_UNKNOWN = enum.auto()  #: by silence, as the caller allowed
    FAIL_UNKNOWN_TOPIC = enum.auto()
    FAIL_WITHOUT_HTTP = enum.auto()
    FAIL_STUCK = enum.auto()


def decide(rules: DrainRules, state: DrainState) -> Step:
    """Return what a drain does next."""
    nsqds = state.nsqds
    if state.is_topic_unknown:
        return Step.FAIL_UNKNOWN_TOPIC
    if rules.silence is None and not all(one.has_http for one in nsqds):
        return Step.FAIL_WITHOUT_HTTP
    is_end_known = all(one.seen is not Seen.UNKNOWN for one in nsqds)
    if not is_end_known and is_silence_the_end(rules, state):
        return Step.END_UNKNOWN
    if any(one.stuck >= rules.patience for one in nsqds):
        return Step.FAIL_STUCK
    if not nsqds or any(one.seen is Seen.NEVER_ASKED or one.waiting for one in nsqds):
        return Step.WAIT
    if state.own and not rules.is_loop:
        return Step.FLUSH
    if not is_end_known or not is_empty(rules, nsqds, state.own):
        return Step.WAIT
    if state.own and state.silence < ANSWER_TIME:
        return Step.WAIT  # other threads may answer them
    if any(one.deferred for one in nsqds) and state.settled < DUE_TIME:
        return Step.WAIT  # some may be due
    return Step.END if state.empty_answers >= EMPTY_ANSWERS else Step.WAIT


def is_empty(rules: DrainRules, nsqds: tuple[NsqdState, ...], own: int) -> bool:
    """Return whether the nsqds that have answered have nothing left that is waited for."""
    others = sum(one.in_flight for one in nsqds) - (own if rules.is_loop else 0)
    return others <= 0 and not any(
        one.waiting or (rules.wait_deferred and one.deferred) for one in nsqds)


def is_silence_the_end(rules: DrainRules, state: DrainState) -> bool:
    """Return whether the caller has allowed an end by silence, and it is long enough.

    Only an nsqd that has never answered is silent: after an answer another one is expected.
    """
    silent = [one for one in state.nsqds if one.seen is Seen.UNKNOWN]
    others = tuple(one for one in state.nsqds if one.seen is not Seen.UNKNOWN)
    return (
        rules.silence is not None and state.quiet >= rules.silence and state.are_all_connected
        and not any(one.has_answered for one in silent)
        and not any(one.seen is Seen.NEVER_ASKED for one in others)
        and is_empty(rules, others, state.own)
        and (not state.own or rules.is_loop and state.silence >= ANSWER_TIME)
    )


class DepthHistory:
    """What the nsqds have said in one drain, and since when one of them is in the way.

    Args:
        longest_look: the most seconds between two looks that count as time of waiting.
    """

    def __init__(self, rules: DrainRules, longest_look: float) -> None:
        self._rules = rules
        self._longest = longest_look
        self.depths: ChannelDepths | None = None  #: the last answer
        self._asked = self._changed = self._last_message = 0.0
        self._has_answered: set[str] = set()
        #: What is unknown, or has messages that do not come -> since when.
        self._blocked: dict[str, tuple[float, Silence]] = {}
        self._empty_answers = 0  # in a row, since the last change

    def on_change(self, now: float, *, is_message: bool = False) -> None:
        """A message came, or a connection was made or lost: older answers do not count."""
        self._changed = now
        self._empty_answers = 0
        if is_message:
            self._last_message = now

    def on_answer(self, asked: float, depths: ChannelDepths, now: float, own: int = 0) -> bool:
        """The nsqds were asked at a time, and this came of it; return whether it is news.

        Args:
            own: messages that this consumer has not answered.
        """
        if asked == self._asked:
            return False
        blocked = {*depths.unknown, *(
            address for address, one in depths.known.items() if _coming(one))}
        former = () if self.depths is None else tuple(self.depths.unknown)
        if blocked.intersection(depths.unknown) != set(former):
            self.on_change(min(now, asked))
        self._blocked = {
            one: self._blocked.get(one, (now, Silence(self._longest))) for one in blocked}
        self._has_answered.update(depths.known)
        self._asked, self.depths = asked, depths
        empty = is_empty(self._rules, self.nsqds(now, 0.0), own)
        self._empty_answers = self._empty_answers + 1 if empty else 0
        return True

    def state(
        self, now: float, *, was_connected: bool, are_all_connected: bool, silence: float,
        quiet: float, own: int = 0,
    ) -> DrainState:
        """Return what is known now; the arguments: see ``DrainState``."""
        is_unknown = self.depths is not None and self.depths.is_topic_unknown
        return DrainState(
            self.nsqds(now, quiet), is_unknown and not was_connected, own, silence, quiet,
            are_all_connected, settled=self._asked - self._changed,
            empty_answers=self._empty_answers)

    def nsqds(self, now: float, quiet: float) -> tuple[NsqdState, ...]:
        """Return what is known of each; ``quiet``: see ``DrainState``."""
        depths = self.depths
        if depths is None:
            return ()
        is_old = self._asked <= self._changed
        found = []
        for address, one in depths.known.items():
            found.append(NsqdState(
                address, Seen.NEVER_ASKED if is_old else Seen.KNOWN, _coming(one), one.in_flight,
                one.deferred, min(quiet, self._stuck(address, now)), has_answered=True))
        for address in depths.unknown:
            found.append(NsqdState(
                address, Seen.NEVER_ASKED if is_old else Seen.UNKNOWN,
                stuck=self._stuck(address, now), has_answered=address in self._has_answered,
                has_http=address not in depths.without_http))
        return tuple(found)

    def _stuck(self, address: str, now: float) -> float:
        if address not in self._blocked:
            return 0.0
        since, silence = self._blocked[address]
        return silence.watch(max(since, self._last_message), now)


def _coming(one: ChannelDepth) -> int:
    """Return how many messages wait that are not paused."""
    return 0 if one.is_paused else one.depth
