"""``Account``: runs blocking publishes and keeps account of them; the base of ``Producer``.

So that the front door reads as documentation. Its constructor is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from nsqclient.config import Config
from nsqclient.errors import (
    ClosedError,
    ConfigError,
    InvalidMessageError,
    PublishError,
    PublishUnknown,
)
from nsqclient.protocol import commands
from nsqclient.publishing.blocking import BlockingPublish
from nsqclient.publishing.discoverer import Discoverer
from nsqclient.publishing.partitioned.gate import Gate
from nsqclient.publishing.pipeline import Pipeline
from nsqclient.publishing.statistics import Statistics
from nsqclient.runtime.deadline import Deadline, Duration, to_seconds
from nsqclient.runtime.monitor import Monitor

T = TypeVar("T")


class Account:
    """The publishes of one producer that are under way; the attributes are made by it."""

    config: Config
    _blocking: BlockingPublish
    _closed: bool
    _discoverer: Discoverer
    _gate: Gate
    _idle: Monitor
    _pipeline: Pipeline
    _running: set[object]  # one for each publish under way
    _statistics: Statistics

    def _deadline(self, timeout: Duration | None) -> Deadline:
        if timeout is None:
            return Deadline(self.config.publish_timeout)
        return Deadline(to_seconds(timeout, "timeout"))

    @staticmethod
    def _delay_ms(defer: Duration) -> int:
        try:
            return round(to_seconds(defer, "defer") * 1000)
        except (ConfigError, OverflowError) as exc:
            raise InvalidMessageError(str(exc)) from exc

    @property
    def _max_delay_ms(self) -> int:
        return round(self.config.nsqd_max_req_timeout * 1000)

    def _publish_part(self, topic: str, bodies: list[bytes], deadline: Deadline) -> None:
        command = commands.mpub_unchecked(topic, bodies)
        self._publish(
            self._blocking.publish, (command, deadline, False), len(bodies), sum(map(len, bodies))
        )

    @property
    def _pending(self) -> int:
        return self._pipeline.pending + len(self._running) + self._gate.deferred.pending

    def _publish(
        self, publish: Callable[..., T], arguments: tuple[Any, ...], messages: int, size: int
    ) -> T:
        """Run one blocking publish and keep account of it."""
        ticket = object()
        began = time.monotonic()
        try:
            # Before the look at _closed: close() waits for what got past it.
            self._running.add(ticket)
            if self._closed:
                raise ClosedError("the producer is closed")
            self._discoverer.start()
            result = publish(*arguments)
            self._statistics.on_published(messages, size, time.monotonic() - began)
            return result
        except PublishError as exc:
            self._statistics.count(
                "unknown" if isinstance(exc, PublishUnknown) else "rejected", messages)
            raise
        finally:
            self._running.discard(ticket)
            if self._closed:
                with self._idle.lock:
                    self._idle.notify_all()
