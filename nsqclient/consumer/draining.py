"""When a consumer has drained its channel: ``drain()`` and ``run_until_empty()``.

``decide`` is the decision, from a snapshot, and pure. ``Drain`` makes the snapshots: it asks the
nsqds for the depth of the channel on a background thread, and sees how long connections are quiet.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from nsqclient.config import Config
from nsqclient.consumer.connections import ConnectionManager
from nsqclient.consumer.lifecycle_log import LifecycleLogger
from nsqclient.consumer.stats import ConsumerStats, DrainReport, StopReport
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import ConfigError, ConnectError
from nsqclient.hints import with_hint
from nsqclient.http.urls import nsqd_url
from nsqclient.runtime.addresses import pieces_of
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.silence import Silence

if TYPE_CHECKING:
    from nsqclient.http.channel_depth import ChannelDepths, DepthQuery

#: Seconds between two looks while no message comes.
TICK = 0.1
#: Seconds that count at most between two looks: in the rest the process was suspended, or busy.
_LONGEST_LOOK = 2 * TICK
#: Seconds between two questions for the depth: twice as long from one to the next.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0
#: Questions in a row that find nothing. Between a queue and its messages in flight nsqd counts a
#: message nowhere for a moment, and no message is there twice.
_EMPTY_ANSWERS = 2
#: Seconds in which an nsqd that was restarted is connected again.
_RECONNECT_TIME = 5.0
#: Least seconds without a message after which messages that wait are not expected any more.
_STALL_TIME = 30.0


class DrainRules(NamedTuple):
    """What one drain was asked for."""

    idle: float = 2.0  #: seconds of silence that are the end where the depth is unknown
    wait_deferred: bool = False
    #: Seconds without a message, though messages wait, after which the drain fails.
    stall: float = _STALL_TIME
    #: Messages in flight are held by the caller, which cannot answer them while it waits.
    is_loop: bool = False


class DrainState(NamedTuple):
    """What is known at one moment at which no message waits for a worker."""

    is_connected: bool = True  #: to at least one nsqd
    are_all_connected: bool = True  #: to every nsqd that is known
    is_topic_unknown: bool = False  #: no nsqlookupd knows it, and there never was a connection
    has_failed: bool = False  #: a dial or a lookup
    disconnected: float = 0.0  #: seconds without any connection
    #: seconds since an nsqd was lost that is not connected again, the least; infinite: none is
    lost: float = float("inf")
    silence: float = 0.0  #: seconds of waiting without a message
    #: seconds for which each connection had RDY to spare and no message; the least of them
    quiet: float = 0.0
    own: int = 0  #: messages that this consumer has not answered
    #: seconds until the last message that it requeued comes back; negative since then
    requeued_for: float = float("-inf")
    depths: ChannelDepths | None = None  #: None: not asked since the last message came
    empty_answers: int = 0  #: in a row, since then


class Step(enum.Enum):
    """What a drain does next."""

    WAIT = enum.auto()
    FLUSH = enum.auto()  #: no more comes for now: handle a batch that is not full
    END = enum.auto()
    FAIL_UNKNOWN_TOPIC = enum.auto()
    FAIL_UNREACHABLE = enum.auto()
    FAIL_STALLED = enum.auto()


def decide(rules: DrainRules, state: DrainState) -> Step:
    """Return what a drain does next."""
    if not state.is_connected:
        if state.is_topic_unknown:
            return Step.FAIL_UNKNOWN_TOPIC
        patience = max(rules.idle, _RECONNECT_TIME)
        is_hopeless = state.has_failed and state.disconnected >= patience
        return Step.FAIL_UNREACHABLE if is_hopeless else Step.WAIT
    depths = state.depths
    if depths is None:
        return Step.WAIT
    if depths.waiting > depths.paused:
        return Step.FAIL_STALLED if state.quiet >= rules.stall else Step.WAIT
    if not depths.is_complete:
        patience = rules.idle if state.are_all_connected else max(rules.idle, _RECONNECT_TIME)
        if state.quiet < patience:
            return Step.WAIT
    if state.own and not rules.is_loop:
        return Step.FLUSH
    if not is_empty(rules, depths, state.own):
        return Step.WAIT
    if state.lost < max(rules.idle, _RECONNECT_TIME):
        return Step.WAIT  # it may restart, and nsqlookupd not list it meanwhile
    if state.own and state.silence < rules.idle:
        return Step.WAIT  # other threads may answer them
    if not depths.is_complete:
        # The silence counts from there on: nsqd looks at what is deferred up to some seconds late.
        is_awaited = rules.wait_deferred and state.requeued_for > -rules.idle
        return Step.WAIT if is_awaited else Step.END
    return Step.END if state.empty_answers >= _EMPTY_ANSWERS else Step.WAIT


def is_empty(rules: DrainRules, depths: ChannelDepths, own: int) -> bool:
    """Return whether the nsqds that answered have nothing left that is waited for."""
    others = depths.in_flight - (own if rules.is_loop else 0)
    return (
        depths.waiting <= depths.paused and others <= 0
        and not (rules.wait_deferred and depths.deferred)
    )


def check_rules(
    idle: Duration, wait_deferred: bool, config: Config, *, discovers: bool, is_loop: bool
) -> DrainRules:
    """Return the rules of a drain from the arguments of ``drain()``.

    Raises:
        ConfigError: ``idle`` is no duration, or 0.
    """
    seconds = to_seconds(idle, "idle")
    if not seconds:
        raise ConfigError("idle must be above 0: messages need time to come")
    stall = max(_STALL_TIME, seconds)
    if discovers:  # an nsqd that registered just now is found in the next round
        stall = max(stall, 10 + config.lookupd_poll_interval * (1 + config.lookupd_poll_jitter))
    return DrainRules(seconds, bool(wait_deferred), stall, is_loop)


def check_http_addresses(addresses: Iterable[str]) -> list[str]:
    """Check the addresses of the HTTP APIs of nsqds.

    Raises:
        ConfigError: it is a plain string, or an address is malformed.
    """
    if isinstance(addresses, str):
        raise ConfigError(
            f"nsqd_http_addresses must be a list of addresses: write {pieces_of(addresses)}")
    if not isinstance(addresses, Iterable):
        raise ConfigError(f"nsqd_http_addresses must be a list of addresses, not {addresses!r}")
    checked = list(addresses)
    for address in checked:
        nsqd_url(address, "")
    return checked


class Drain:
    """One drain of a consumer.

    Args:
        make_query: returns what asks the nsqds; called on a background thread, since its module
            takes long to import.
        running: returns the connections that are open.
        connected_until: returns when the last connection ended, on time.monotonic().
        take_stats: returns the consumer's counters.
        queued: returns how many messages wait for a worker.
        flush: hands a batch over that is not full, on a worker thread.
        addresses: of the consumer, as errors show them.

    Threads: ``is_over`` is called by one, which waits for messages.
    """

    def __init__(
        self,
        rules: DrainRules,
        make_query: Callable[[], DepthQuery],
        run_in_background: Callable[[Callable[[], None]], None],
        connections: ConnectionManager,
        running: Callable[[], list[Subscription]],
        connected_until: Callable[[], float],
        take_stats: Callable[[], ConsumerStats],
        queued: Callable[[], int],
        flush: Callable[[], None],
        log: LifecycleLogger,
        topic: str,
        addresses: str,
    ) -> None:
        self._rules = rules
        self._make_query = make_query
        self._run_in_background = run_in_background
        self._connections = connections
        self._running = running
        self._connected_until = connected_until
        self._take_stats = take_stats
        self._queued = queued
        self._flush = flush
        self._log = log
        self._topic = topic
        self._addresses = addresses
        self._query: DepthQuery | None = None
        self._began = self._last_look = self._last_change = time.monotonic()
        self._was_connected = False
        #: When the last message came on each connection, and for how long it was quiet since.
        self._quiet: dict[Subscription, tuple[float, float]] = {}
        #: nsqd, or a partition of it -> when its connection was lost, while it is not back
        self._lost: dict[str, tuple[float, Silence]] = {}
        self._silence = Silence(_LONGEST_LOOK)
        self._disconnected = Silence(_LONGEST_LOOK)
        self._overdue = Silence(_LONGEST_LOOK)  # since a requeued message was to come back
        self._own = 0
        self._before = take_stats().total
        # Replaced by the background thread, never changed: when it asked, and what came of it.
        self._answer: tuple[float, ChannelDepths | None, bool] = (0.0, None, False)
        self._is_asking = False
        self._seen = 0.0  # when the last answer was asked for that was looked at
        self._empty_answers = 0
        self._next_question = 0.0
        self._pause = _FIRST_PAUSE
        self._last_depths: ChannelDepths | None = None
        self._logged: set[str] = set()

    def check_topic(self) -> None:
        """See that an nsqd knows the topic, before a subscription would make it.

        Only where nsqds were given, and all of them answer. Blocks: as ``DepthQuery.fetch``.

        Raises:
            ConnectError: none of them has it.
        """
        self._query = self._make_query()
        depths = self._query.fetch()
        if depths.is_complete and not any(one.has_topic for one in depths.known.values()):
            raise self._unknown_topic("nsqd")

    def is_over(self, since: float = 0.0) -> bool:
        """Return whether the channel is drained. Call it again after ``TICK`` seconds.

        Args:
            since: when the wait for a message began, on time.monotonic(), in a loop.

        Raises:
            ConnectError: no nsqd can be reached, no nsqlookupd knows the topic, or messages wait
                at an nsqd and do not come.
        """
        state = self._look(since)
        step = decide(self._rules, state)
        if step is Step.FLUSH:
            self._flush()
        elif step is Step.FAIL_UNKNOWN_TOPIC:
            raise self._unknown_topic("nsqlookupd")
        elif step is Step.FAIL_UNREACHABLE or step is Step.FAIL_STALLED:
            raise self._failure(state, step)
        elif step is Step.END:
            self._log_end(state)
            return True
        self._ask()
        return False

    def report(self, is_empty: bool, stop: StopReport) -> DrainReport:
        """Return how the drain went; ``is_empty``: it ended since ``is_over`` returned true."""
        after, depths = self._take_stats().total, self._last_depths
        return DrainReport(
            finished=after.finished - self._before.finished,
            requeued=after.requeued - self._before.requeued,
            given_up=after.given_up - self._before.given_up,
            deferred=0 if depths is None else depths.deferred,
            paused=0 if depths is None else depths.paused,
            unknown=() if depths is None else tuple(depths.unknown),
            is_empty=is_empty,
            stop=stop,
        )

    # -- the snapshot

    def _look(self, since: float) -> DrainState:
        now = time.monotonic()
        subs = self._running()
        own = sum(sub.count_in_flight(now) for sub in subs)
        self._note_changes(subs, own, now)
        if self._queued():
            self._last_look = now
            return DrainState()
        asked, depths, is_unknown = self._answer
        if asked <= self._last_change:
            depths = None
        elif asked != self._seen and depths is not None:
            self._seen = asked
            self._last_depths = depths
            empty = is_empty(self._rules, depths, own)
            self._empty_answers = self._empty_answers + 1 if empty else 0
            self._log_waiting(depths, own)
        known = self._connections.addresses()
        connected_until = max(self._began, self._connected_until())
        requeued_until = max((sub.requeued_until for sub in subs), default=0.0)
        return DrainState(
            is_connected=bool(subs),
            are_all_connected=known <= {str(sub.place) for sub in subs},
            is_topic_unknown=is_unknown and not self._was_connected,
            has_failed=(self._connections.incompatibility or self._connections.last_failure)
            is not None,
            disconnected=0.0 if subs else self._disconnected.watch(connected_until, now),
            lost=min([silence.watch(ended, now) for place, (ended, silence) in self._lost.items()
                      if place in known], default=float("inf")),
            silence=self._silence.watch(max(self._last_change, since), now),
            quiet=min((seconds for _, seconds in self._quiet.values()), default=0.0),
            own=own,
            requeued_for=requeued_until - now if requeued_until > now else (
                -self._overdue.watch(requeued_until, now)),
            depths=depths,
            empty_answers=self._empty_answers,
        )

    def _note_changes(self, subs: list[Subscription], own: int, now: float) -> None:
        """Note messages that came, connections, and how long each of these was quiet."""
        # What ran between two calls, such as the body of a loop, is no time of waiting.
        waited = min(now - self._last_look, _LONGEST_LOOK)
        quiet: dict[Subscription, tuple[float, float]] = {}
        for sub in subs:
            state = sub.rdy_state
            last = 0.0 if state is None else state.last_message
            before, seconds = self._quiet.get(sub, (None, 0.0))
            if last != before:
                quiet[sub] = last, 0.0
                self._on_change(now)
            else:
                has_spare = state is not None and state.rdy > sub.count_in_flight(now)
                quiet[sub] = last, seconds + waited if has_spare else seconds
        ended = [str(sub.place) for sub in self._quiet if sub not in quiet]
        if ended:
            self._on_change(now)
            self._lost.update((place, (now, Silence(_LONGEST_LOOK))) for place in ended)
        for sub in subs if self._lost else ():
            self._lost.pop(str(sub.place), None)
        if own != self._own:
            self._ask_soon(now)
        self._was_connected = self._was_connected or bool(subs)
        self._quiet, self._own, self._last_look = quiet, own, now

    def _on_change(self, now: float) -> None:
        self._last_change = now
        self._empty_answers = 0
        self._ask_soon(now)

    def _ask_soon(self, now: float) -> None:
        self._pause = _FIRST_PAUSE
        self._next_question = min(self._next_question, now + _FIRST_PAUSE)

    def _ask(self) -> None:
        """Have the nsqds asked for the depth, unless that was done just now, or messages wait."""
        now = time.monotonic()
        if self._is_asking or now < self._next_question or self._queued():
            return
        self._next_question = now + self._pause
        self._pause = min(2 * self._pause, _LAST_PAUSE)
        self._is_asking = True
        self._run_in_background(self._fetch)

    def _fetch(self) -> None:
        """On a background thread: ask."""
        from nsqclient.http.channel_depth import ChannelDepths

        asked = time.monotonic()
        try:
            if any(sub.place.partition is not None for sub in self._running()):
                unknown = {self._topic: "the topic has partitions, whose depth is not asked for"}
                self._answer = (asked, ChannelDepths({}, unknown), False)
                return
            if self._query is None:
                self._query = self._make_query()
            depths = self._query.fetch()
            is_unknown = not self._was_connected and self._query.is_topic_unknown()
            self._answer = (asked, depths, is_unknown)
        except Exception as exc:  # a discovery_filter may raise
            self._log.exception("the request for the depth failed")
            self._answer = (asked, ChannelDepths({}, {self._topic: repr(exc)}), False)
        finally:
            self._is_asking = False

    # -- what is said

    def _log_waiting(self, depths: ChannelDepths, own: int) -> None:
        """Log, once each, what is not obvious."""
        if depths.waiting > depths.paused or own:
            return
        if depths.in_flight and self._is_news("in flight"):
            self._log.drain_waits_for_others(depths.in_flight)
        elif depths.deferred and self._rules.wait_deferred and self._is_news("deferred"):
            self._log.drain_waits_for_deferred(depths.deferred)

    def _is_news(self, what: str) -> bool:
        is_news = what not in self._logged
        self._logged.add(what)
        return is_news

    def _log_end(self, state: DrainState) -> None:
        report, depths = self.report(True, StopReport(0, 0, 0)), state.depths
        assert depths is not None
        self._log.drained(report.finished, report.requeued)
        if not depths.is_complete:
            why = "; ".join(f"{address}: {why}" for address, why in depths.unknown.items())
            self._log.drained_by_silence(self._rules.idle, why or "no nsqlookupd lists an nsqd")
        if state.own:
            self._log.drain_left_unanswered(state.own)
        if depths.deferred and not self._rules.wait_deferred:
            self._log.drain_left_deferred(depths.deferred)
        if depths.paused:
            self._log.drain_left_paused(depths.paused, ", ".join(
                address for address, one in depths.known.items() if one.is_paused and one.depth))

    def _unknown_topic(self, server: str) -> ConnectError:
        return ConnectError(
            self._addresses, f"no {server} has the topic {self._topic}: check its spelling; a"
            " drain handles messages that were published before")

    def _failure(self, state: DrainState, step: Step) -> ConnectError:
        failure = self._connections.incompatibility or self._connections.last_failure
        reason = "" if failure is None else f"; the last failure: {with_hint(failure)}"
        if step is Step.FAIL_UNREACHABLE:
            what = f"no nsqd could be reached for {state.disconnected:.1f} s of a drain"
        else:
            assert state.depths is not None
            places = ", ".join(
                f"{one.depth} at {address}" for address, one in state.depths.known.items()
                if one.depth and not one.is_paused)
            what = f"messages wait ({places}), and none has come for {state.quiet:.0f} s"
        error = ConnectError(self._addresses, what + reason)
        error.__cause__ = failure
        return error
