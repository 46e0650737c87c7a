"""``LifeLog``: the log lines of one consumer, each of which begins with ``topic/channel:``.

The methods are the events in a consumer's life, one line each, made to be grepped for; a line about
something that does not work ends with what to do. Everything else that concerns a consumer is
logged with ``warning()`` and the like. The tables in ``docs/topics/logging.rst`` have all of them,
and a test compares them.
"""

from __future__ import annotations

import logging

from nsqclient.advice import explained
from nsqclient.display import without_password
from nsqclient.errors import NSQError
from nsqclient.runtime.line_limit import LineLimit
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.prefixed_logger import PrefixedLogger


class LifeLog(PrefixedLogger):
    """Logs what happens to one consumer. Threads: any."""

    def __init__(self, topic: str, channel: str = "") -> None:
        name = f"{topic}/{channel}" if channel else topic
        super().__init__(logging.getLogger("nsqclient.consumer"), f"{name}: ")
        self._topic = topic
        # A nsqlookupd decides how many addresses there are.
        self._discoveries, self._failed_dials = LineLimit(self), LineLimit(self)

    def started(self, max_in_flight: int) -> None:
        """The consumer begins to connect."""
        self.info("started, max_in_flight %d", max_in_flight)

    def connected(self, address: str) -> None:
        """It is subscribed on an nsqd."""
        self.info("consuming from %s", address)

    def lost(self, address: str, error: NSQError) -> None:
        """A connection ended that nobody closed."""
        self.warning("lost %s, connecting again: %s", address, explained(error, address))

    def cannot_connect(self, address: str, error: NSQError, *, is_repeated: bool) -> None:
        """A dial failed, or nsqd refused us; ``is_repeated``: it is certain to be tried again."""
        self.log(
            self._failed_dials.level(logging.WARNING),
            "cannot consume from %s%s: %s", address, ", trying again" if is_repeated else "",
            explained(error, address))

    def discovered(self, address: str, lookupd: str) -> None:
        """A nsqlookupd lists an nsqd that is new to us."""
        self.log(
            self._discoveries.level(logging.INFO), "nsqlookupd %s lists %s",
            without_password(lookupd), address,
        )

    def forgotten(self, address: str) -> None:
        """No nsqlookupd lists a lost nsqd any more."""
        self.info("forgot %s: no nsqlookupd has listed it for long", address)

    def lookup_failed(self, error: NSQError) -> None:
        """A nsqlookupd gave no usable answer."""
        self.warning("no answer from %s", explained(error))

    def topic_unknown(self, interval: float) -> None:
        """All nsqlookupds answered, and none knows the topic. Said once."""
        self.warning(
            "no nsqlookupd knows the topic %s yet: see that it is spelt right, and publish to it or"
            " create it; asked again after 1, 2, 4 ... s, at most %g s", self._topic, interval,
        )

    def backing_off(self, wait: float, failures: int) -> None:
        """Failures slow the consumer down."""
        self.warning(
            "backing off for %.3g s after %s: handlers raise or requeue; raise"
            " Requeue(backoff=False) for failures that should not slow the rest",
            wait, counted(failures, "failure"),
        )

    def backoff_ends(self) -> None:
        """The failures are made good."""
        self.info("backoff ends, full flow again")

    def signal_came(self) -> None:
        """SIGINT or SIGTERM came, in a command that runs several consumers."""
        self.info("stopping: a signal came")

    def held(self, size: int, limit: int) -> None:
        """Too many bytes wait for workers. Logged once a minute at most."""
        self.warning(
            "RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is %.1f"
            " MiB; add workers, make the handler faster, or lower max_in_flight",
            size / 2**20, limit / 2**20,
        )

    def hold_ends(self) -> None:
        """Half of max_queued_bytes is left."""
        self.info("the queue is short again, messages flow")

    def stopped(self, finished: int, handed_back: int, abandoned: int) -> None:
        """It has stopped; the numbers of its report."""
        self.log(
            logging.WARNING if abandoned else logging.INFO,
            "stopped: while stopping %d finished, %d handed back, %d abandoned%s",
            finished, handed_back, abandoned,
            "; nsqd delivers these again, a longer stop timeout saves that" if abandoned else "",
        )
