"""``LifeLog``: one line for each event in the life of a consumer, made to be grepped for.

Each begins with ``topic/channel:``. A line about something that does not work ends with what to do.
The table in ``docs/topics/logging.rst`` has all of them, and a test holds it to be true.
"""

from __future__ import annotations

import logging

from nsqclient.advice import explained
from nsqclient.display import without_password
from nsqclient.errors import NSQError

logger = logging.getLogger("nsqclient.consumer")


class LifeLog:
    """Logs the life of one consumer. Threads: any."""

    def __init__(self, topic: str, channel: str = "") -> None:
        self._topic = topic
        self._name = f"{topic}/{channel}" if channel else topic

    def started(self, max_in_flight: int) -> None:
        """The consumer begins to connect."""
        logger.info("%s: started, max_in_flight %d", self._name, max_in_flight)

    def connected(self, address: str) -> None:
        """It is subscribed on an nsqd."""
        logger.info("%s: consuming from %s", self._name, address)

    def lost(self, address: str, error: NSQError) -> None:
        """A connection ended that nobody closed."""
        logger.warning(
            "%s: lost %s, connecting again: %s", self._name, address, explained(error, address))

    def cannot_connect(self, address: str, error: NSQError) -> None:
        """A dial failed, or nsqd refused us."""
        logger.warning("%s: cannot consume from %s, trying again: %s", self._name, address,
                       explained(error, address))

    def discovered(self, address: str, lookupd: str) -> None:
        """A nsqlookupd lists an nsqd that is new to us."""
        logger.info(
            "%s: nsqlookupd %s lists %s", self._name, without_password(lookupd), address
        )

    def forgotten(self, address: str) -> None:
        """No nsqlookupd lists a lost nsqd any more."""
        logger.info("%s: forgot %s: no nsqlookupd has listed it for long", self._name, address)

    def lookup_failed(self, error: NSQError) -> None:
        """A nsqlookupd gave no usable answer."""
        logger.warning("%s: no answer from %s", self._name, explained(error))

    def topic_unknown(self, interval: float) -> None:
        """All nsqlookupds answered, and none knows the topic. Said once."""
        logger.warning(
            "%s: no nsqlookupd knows the topic %s yet: see that it is spelt right, and publish to"
            " it or create it; asked again after 1, 2, 4 ... s, at most %g s", self._name,
            self._topic, interval,
        )

    def backing_off(self, wait: float, failures: int) -> None:
        """Failures slow the consumer down."""
        logger.warning(
            "%s: backing off for %.3g s after %d failures: handlers raise, their errors are logged"
            " above; raise Requeue(backoff=False) for failures that should not slow the rest",
            self._name, wait, failures,
        )

    def backoff_ends(self) -> None:
        """The failures are made good."""
        logger.info("%s: backoff ends, full flow again", self._name)

    def held(self, size: int, limit: int) -> None:
        """Too many bytes wait for workers. Logged once a minute at most."""
        logger.warning(
            "%s: RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is %.1f"
            " MiB; add workers, make the handler faster, or lower max_in_flight",
            self._name, size / 2**20, limit / 2**20,
        )

    def hold_ends(self) -> None:
        """Half of max_queued_bytes is left."""
        logger.info("%s: the queue is short again, messages flow", self._name)

    def stopped(self, finished: int, handed_back: int, abandoned: int) -> None:
        """It has stopped; the numbers of its report."""
        logger.log(
            logging.WARNING if abandoned else logging.INFO,
            "%s: stopped: %d finished, %d handed back, %d abandoned%s", self._name,
            finished, handed_back, abandoned,
            "; nsqd delivers these again, a longer stop timeout saves that" if abandoned else "",
        )
