"""``Published``: what an embedded nsqd has stored, consumed or not."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nsqclient.devserver.nsqd import Nsqd
from nsqclient.runtime.deadline import to_seconds
from nsqclient.testing.messages import check_count


class Published:
    """The bodies that were published to an embedded nsqd from now on, by topic.

    Each body that nsqd stored is listed once, in the order of storing, whether it was published by
    TCP, HTTP or ``nsqd.publish()``, and whether it was consumed or not. Rejected messages are not
    listed. An nsqd has one such record: a second one replaces the first.

    Threads: any.
    """

    def __init__(self, nsqd: Nsqd) -> None:
        self._changed = threading.Condition()
        self._bodies: defaultdict[str, list[bytes]] = defaultdict(list)  # by _changed
        nsqd._observe_publishes(self._on_published)

    def __call__(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic; an empty list where nothing was published."""
        with self._changed:
            return list(self._bodies.get(topic, ()))

    def json(self, topic: str) -> list[Any]:
        """Return the bodies of a topic, decoded as JSON.

        Raises:
            ValueError: a body is not JSON.
        """
        return [json.loads(body) for body in self(topic)]

    def wait_for(self, topic: str, count: int = 1, timeout: float = 10.0) -> list[bytes]:
        """Wait until another thread or process has published ``count`` bodies; return them.

        Blocks: at most ``timeout`` seconds.

        Raises:
            TimeoutError: there are fewer; the text has their number.
            ConfigError: ``count`` or ``timeout`` is negative, or no number.
        """
        check_count("count", count)
        timeout = to_seconds(timeout, "timeout")
        with self._changed:
            if self._changed.wait_for(
                    lambda: len(self._bodies.get(topic, ())) >= count, timeout):
                return list(self._bodies.get(topic, ()))
            found = len(self._bodies.get(topic, ()))
        raise TimeoutError(
            f"{found} of {count} messages were published to {topic} in {timeout:g} s")

    def _on_published(self, topic: str, bodies: Sequence[bytes]) -> None:
        with self._changed:
            self._bodies[topic].extend(bodies)
            self._changed.notify_all()
