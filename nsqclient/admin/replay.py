"""``Replayer``: publishes all dead letters of a channel to a topic, or to where they came from.

As ``nsqclient dead_letters replay`` does: a letter is finished after nsqd has stored its body, so a
replay that is interrupted causes duplicates and no loss. A letter that cannot be published ends the
replay and stays: NSQ would deliver the same one again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator

from nsqclient.admin.access_control import RequestError
from nsqclient.admin.aggregate import number, objects, text
from nsqclient.admin.message_peeker import Steps, make_reader
from nsqclient.admin.settings import AdminSettings
from nsqclient.consumer.dead_letters import DeadLetter
from nsqclient.errors import NSQError
from nsqclient.http.cluster import Cluster, Node
from nsqclient.message import Message
from nsqclient.producer.producer import Producer
from nsqclient.runtime.delays import RateLimiter

#: Messages in flight: those that are not reached before the end are requeued, so they are few.
_MAX_IN_FLIGHT = 10
#: Seconds that a letter should wait in flight at most: nsqd delivers it again after 60.
_LONGEST = 20.0
#: Seconds between two checks whether the browser has disconnected.
_CHECK_INTERVAL = 0.5
_STOP_TIMEOUT = 2.0
#: Usual suffixes of the names of dead-letter topics.
_DEAD_LETTER_SUFFIXES = ("dead", "dead_letter", "dead_letters", "deadletter", "deadletters",
                         "dead-letter", "dead-letters", "dlq")


def source_of_dead_letters(topic: str) -> str:
    """Return the topic of the dead letters in a topic, by its name; empty: no dead letters."""
    name = topic.lower()
    for end in sorted(_DEAD_LETTER_SUFFIXES, key=len, reverse=True):
        for joint in ".-_":
            if name.endswith(joint + end) and len(name) > len(end) + 1:
                return topic[:-len(end) - 1]
    return ""


class Replayer:
    """Runs the replays of one admin page, one at a time. Threads: any."""

    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._running = threading.Lock()
        self._closing = threading.Event()

    def close(self) -> None:
        """End a replay that is under way, soon."""
        self._closing.set()

    def run(self, topic: str, channel: str, target: str, rate: float) -> Steps:
        """Replay what waits in a channel now; yield ``wanted``, then ``done`` or ``error``.

        Args:
            target: the topic for all that the key of the settings has not signed.
            rate: messages per second at most, on average.

        Raises:
            RequestError: no nsqd has the channel, or another replay is under way.
            UpstreamError: no nsqlookupd answered.
        """
        found = self._cluster.recent_nodes()
        stats, _ = self._cluster.stats(found.nodes, topic, channel, progressive=True)
        depths = {
            node: number(each, "depth") + number(each, "deferred_count")
            for node, answer in stats.items() for named in objects(answer, "topics")
            if text(named, "topic_name") == topic
            for each in objects(named, "channels") if text(each, "channel_name") == channel
        }
        if not depths:
            raise RequestError(404, "CHANNEL_NOT_FOUND", f"no nsqd has the channel {channel}")
        if not self._running.acquire(blocking=False):
            raise RequestError(429, "REPLAY_RUNNING", "another replay is under way: wait for it")
        sources = [node for node, depth in depths.items() if depth]
        targets = [node.tcp_reached_at for node in stats]
        return self._replay(topic, channel, target, rate, sum(depths.values()), sources, targets)

    def _replay(
        self, topic: str, channel: str, target: str, rate: float, wanted: int,
        sources: list[Node], targets: list[str],
    ) -> Steps:
        try:
            yield {"wanted": wanted}
            if not wanted:
                return
            in_flight = max(len(sources), min(wanted, _MAX_IN_FLIGHT, int(rate * _LONGEST)))
            consumer, query = make_reader(
                self._cluster, self._settings, topic, channel, sources, in_flight)
            producer = Producer(nsqd_tcp_addresses=targets, config=consumer.config)
            try:
                yield from self._letters(
                    consumer.take(wanted, query, is_over=self._closing.is_set), producer, target,
                    rate)
            except NSQError as exc:
                yield {"error": str(exc)}
            finally:
                consumer.stop(_STOP_TIMEOUT)
                producer.close(_STOP_TIMEOUT)
        finally:
            self._running.release()

    def _letters(
        self, messages: Generator[Message | None, None, None], producer: Producer, target: str,
        rate: float,
    ) -> Steps:
        done, limiter = 0, RateLimiter(rate, time.monotonic())
        key = self._settings.dead_letter_key
        with contextlib.closing(messages):
            for message in messages:
                while message is not None and not limiter.take(1, time.monotonic()):
                    if self._closing.wait(min(limiter.wait(), _CHECK_INTERVAL)):
                        return
                    yield {}
                if message is None:
                    yield {}  # writing detects that the browser has disconnected
                    continue
                letter = DeadLetter.parse(message.body, key)
                # Without a key anybody may have written what the letter says.
                to = (key and letter.topic) or target
                try:
                    producer.publish(to, letter.body)
                except NSQError as exc:
                    yield {"error": f"not replayed to {to}: {exc}"}
                    return  # the message is requeued
                message.finish()
                done += 1
                yield {"done": done}
