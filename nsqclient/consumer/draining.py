"""``Drain``: one run of ``drain()`` or ``run_until_empty()``, which follows ``DrainDecision``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nsqclient.config import Config
from nsqclient.consumer.core import ConsumerCore
from nsqclient.consumer.drain_decision import ChannelDepths, DrainDecision, DrainRules, Step
from nsqclient.consumer.stats import DrainReport, StopReport
from nsqclient.display import counted
from nsqclient.errors import ConfigError, ConnectError, with_hint
from nsqclient.log_records import log_fields
from nsqclient.runtime.deadline import Duration, to_seconds

if TYPE_CHECKING:
    from nsqclient.consumer.channel_depth import DepthQuery

#: Seconds between two checks while no message arrives, and the longest time that counts as waiting.
TICK = 0.1
_LONGEST_LOOK = 2 * TICK
#: Seconds between two requests for the depth.
_PAUSE = 0.25


def check_rules(
    end_after_silence: Duration | None, wait_deferred: bool, config: Config, *, is_loop: bool
) -> DrainRules:
    """Check the arguments of ``drain()``. Raises ConfigError."""
    silence = None
    if end_after_silence is not None:
        silence = to_seconds(end_after_silence, "end_after_silence")
        if not silence:
            raise ConfigError("end_after_silence must be above 0: messages need time to arrive")
        if wait_deferred:
            raise ConfigError(
                "wait_deferred needs to know how many messages are deferred: use it without"
                " end_after_silence, which allows an end where that is unknown")
    return DrainRules(config.drain_patience, silence, bool(wait_deferred), is_loop)


class Drain:
    """One drain of a consumer.

    Threads: ``check``, then ``is_over``, are called by the thread that waits for messages.
    """

    def __init__(self, core: ConsumerCore, rules: DrainRules, query: DepthQuery) -> None:
        self._core = core
        self._connections = core.connections
        self._log = core.log
        self._rules = rules
        self._query = query
        self._decision = DrainDecision(rules, _LONGEST_LOOK)
        self._before = core.stats().total
        # (when it was asked, answers). Replaced as a whole by the background thread.
        self._answer: tuple[float, ChannelDepths] = (0.0, ChannelDepths())
        self._is_asking = False
        self._next_question = 0.0
        self._logged: set[str] = set()

    def check(self) -> None:
        """Check that the end can be detected, before the first message is taken.

        Raises:
            ConfigError: the HTTP address of an nsqd is not known.
            ConnectError: no nsqd has the topic.
        """
        if self._core.shutdown.has_begun:
            return
        self._fetch()
        depths = self._answer[1]
        self._check_topic(depths)
        if depths.without_http and self._rules.silence is None:
            why = "; ".join(f"{one}: {depths.unknown[one]}" for one in depths.without_http)
            raise ConfigError(
                "a drain asks each nsqd at its HTTP port whether the channel is empty: pass"
                f" nsqd_http_addresses=, since these are not known ({why}); or end_after_silence=,"
                " which allows an end that is not verified")

    def _check_topic(self, depths: ChannelDepths) -> None:
        core = self._core
        if depths.is_topic_unknown and not self._connections.worked():
            raise ConnectError(
                core.shown_addresses(), f"no nsqd has the topic {core.context.topic}: check its"
                " spelling; a drain handles messages that were published before")

    def is_over(self) -> bool:
        """Return True once the channel is drained. Call it again after ``TICK`` seconds.

        Raises:
            NSQError: the topic cannot be consumed in this way.
            ConnectError: no nsqd has the topic, or ``drain_patience`` has passed.
        """
        core = self._core
        if self._connections.incompatibility is not None:
            raise self._connections.incompatibility
        if len(core.processor.workers):
            return False  # messages wait for workers: this does not count as silence
        now, own = time.monotonic(), 0
        decision, connections = self._decision, {}
        for sub in core.flow.subscriptions:
            in_flight, state = sub.count_in_flight(now), sub.rdy_state
            own += in_flight
            connections[sub] = (
                (0.0, False) if state is None else (state.last_message, state.rdy > in_flight))
        decision.look(now, connections, own)
        asked, depths = self._answer
        if asked and decision.on_answer(asked, depths):
            self._check_topic(depths)
            self._log_waiting(depths)
        worked = self._connections.worked()
        connected = {sub.address for sub in connections}
        step = decision.decide(bool(connected) and worked <= connected)
        if step is Step.FLUSH:
            core.flush_batch()
        elif step is Step.END:
            self._log_end()
            return True
        elif step is Step.FAIL:
            raise self._failure()
        if not self._is_asking and now >= self._next_question:
            self._next_question = now + _PAUSE
            self._is_asking = True
            core.context.run_in_background(self._fetch)
        return False

    def report(self, has_ended: bool, stop: StopReport) -> DrainReport:
        after, depths = self._core.stats().total, self._decision.depths or ChannelDepths()
        return DrainReport(
            finished=after.finished - self._before.finished,
            requeued=after.requeued - self._before.requeued,
            given_up=after.given_up - self._before.given_up,
            deferred=depths.deferred, paused=depths.paused, unknown=tuple(depths.unknown),
            is_empty=has_ended and not depths.unknown, stop=stop)

    def _fetch(self) -> None:
        """Ask the nsqds. On a background thread, except the first time."""
        asked = time.monotonic()
        try:
            self._answer = (asked, self._query.fetch(self._connections.worked()))
            self._connections.look_for(self._query.listed)
        except Exception as exc:  # a discovery_filter may raise
            self._log.exception("the request for the depth failed")
            self._answer = (asked, ChannelDepths({}, {self._core.context.topic: repr(exc)}))
        finally:
            self._is_asking = False

    # -- logs and errors

    def _log_waiting(self, depths: ChannelDepths) -> None:
        """Log each reason to wait once."""
        reasons = {
            address: f"until {address} says how many messages are left: {why}"
            for address, why in depths.unknown.items()
        }
        if not (self._decision.own or depths.coming):
            if depths.in_flight:
                reasons["in flight"] = (
                    f"for {counted(depths.in_flight, 'message')} in flight at other consumers or at"
                    " a process that was killed: nsqd requeues them after msg_timeout")
            elif depths.deferred and self._rules.wait_deferred:
                reasons["deferred"] = f"for {counted(depths.deferred, 'deferred message')}"
        for key, reason in reasons.items():
            if key not in self._logged:
                self._logged.add(key)
                self._log.info("drain: waiting %s", reason,
                               extra=log_fields(nsqd=key) if key in depths.unknown else None)

    def _log_end(self) -> None:
        report = self.report(True, StopReport(0, 0, 0))
        depths = self._decision.depths or ChannelDepths()
        if report.is_empty:
            self._log.info(
                "drained: %d finished, %d requeued", report.finished, report.requeued)
        else:
            self._log.warning(
                "ended after %g s without a message: %d finished, %d requeued; it is unknown"
                " whether messages are left: %s", self._rules.silence or 0.0, report.finished,
                report.requeued, "; ".join(f"{one}: {why}" for one, why in depths.unknown.items()))
        if self._decision.own:
            self._log.info("drained, except for %s that your code has not responded to",
                           counted(self._decision.own, "message"))
        if depths.deferred and not self._rules.wait_deferred:
            self._log.warning(
                "drained, except for %s, requeued or published with a delay: to wait for them, set"
                " wait_deferred=True", counted(depths.deferred, "deferred message"))
        if depths.paused:
            self._log.warning(
                "drained, except for %s at %s: the channel or the topic is paused there",
                counted(depths.paused, "message"), ", ".join(
                    one for one, each in depths.known.items() if each.is_paused and each.depth))

    def _failure(self) -> ConnectError:
        failure = self._connections.last_failure
        reason = "" if failure is None else f"; the last failure: {with_hint(failure)}"
        error = ConnectError(
            self._core.shown_addresses(), "a drain could not see that the channel is empty for"
            f" {self._rules.patience:g} s (drain_patience):"
            f" {'; '.join(self._decision.stuck())}{reason}")
        error.__cause__ = failure
        return error
