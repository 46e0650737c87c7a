"""``Replayer``: publishes all dead letters of a channel to a topic, or to where they came from.

As ``nsqclient dead_letters replay`` does: a letter is finished after nsqd has stored its body, so a
replay that is interrupted causes duplicates and no loss. A letter that cannot be published ends the
replay and stays: NSQ would deliver the same one again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from typing import Any

from nsqclient.admin.access_control import RequestError
from nsqclient.admin.aggregate import number, objects, text
from nsqclient.admin.settings import AdminSettings
from nsqclient.consumer.consumer import Consumer
from nsqclient.consumer.envelope import DeadLetter
from nsqclient.errors import ConnectError, NSQError
from nsqclient.http.cluster import Cluster, Node
from nsqclient.producer.producer import Producer
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.admin")

#: Messages in flight: those that are not reached before the end are requeued, so they are few.
_MAX_IN_FLIGHT = 10
#: Seconds that a letter should wait in flight at most: nsqd delivers it again after 60.
_LONGEST = 20.0
#: Seconds without a message after which a replay asks whether letters are left, and between two
#: checks whether it should end.
_LAST_WAIT = 5.0
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


class Pace:
    """The times of letters for a rate on average: the time that a publish takes counts. Pure.

    After a delay at most the letters of one second follow each other without a wait.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._interval = 1 / rate
        self._due = now  # the time of the next letter

    def wait(self, now: float) -> float:
        """Return the seconds from now, when a letter was published, until the next one."""
        self._due = max(self._due + self._interval, now - 1.0)
        return max(0.0, self._due - now)


_Steps = Generator[dict[str, Any], None, None]


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

    def run(self, topic: str, channel: str, target: str, rate: float) -> _Steps:
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
    ) -> _Steps:
        try:
            yield {"wanted": wanted}
            if not wanted:
                return
            config = self._settings.consumer_config.replace(
                user_agent=f"nsqadmin/{__version__} nsqclient/{__version__}",
                max_in_flight=max(len(sources), min(wanted, _MAX_IN_FLIGHT, int(rate * _LONGEST))),
                max_attempts=0)
            producer = Producer(nsqd_tcp_addresses=targets, config=config)
            consumer = Consumer(
                topic, channel, nsqd_tcp_addresses=[node.tcp_reached_at for node in sources],
                config=config,
                on_error=lambda error: logger.info("replay of %s: %s", topic, error))
            try:
                yield from self._letters(consumer, producer, target, rate, wanted, sources)
            finally:
                consumer.stop(_STOP_TIMEOUT)
                producer.close(_STOP_TIMEOUT)
        finally:
            self._running.release()

    def _letters(
        self, consumer: Consumer, producer: Producer, target: str, rate: float, wanted: int,
        sources: list[Node],
    ) -> _Steps:
        done, since = 0, time.monotonic()
        pace: Pace | None = None  # from the first letter on
        key = self._settings.dead_letter_key
        consumer.start()
        while not self._closing.is_set():
            silence = time.monotonic() - since
            if silence >= _LAST_WAIT:
                left = self._left(sources, consumer.topic, consumer.channel)
                if not left:
                    return
                if silence >= consumer.config.drain_patience:
                    yield {"error": f"no letter arrived for {silence:.0f} s: {'; '.join(left)}"}
                    return
            try:
                for message in consumer.messages(timeout=_CHECK_INTERVAL):
                    letter = DeadLetter.parse(message.body, key)
                    # Without a key anybody may have written what the letter says.
                    to = (key and letter.topic) or target
                    if pace is None:
                        pace = Pace(rate, time.monotonic())
                    try:
                        producer.publish(to, letter.body)
                    except NSQError as exc:
                        message.requeue(0, backoff=False)
                        yield {"error": f"not replayed to {to}: {exc}"}
                        return
                    message.finish()
                    done += 1
                    yield {"done": done}
                    if done >= wanted or self._closing.wait(pace.wait(time.monotonic())):
                        return
                    since = time.monotonic()
            except ConnectError:
                pass  # on_error has logged the reason
            yield {}  # writing detects that the browser has disconnected

    def _left(self, sources: list[Node], topic: str, channel: str) -> list[str]:
        """Return where letters wait, or may wait since an nsqd does not answer."""
        stats, failures = self._cluster.stats(sources, topic, channel, progressive=True)
        return [failure.text() for failure in failures] + [
            f"{number(each, 'depth')} wait at {node.address}"
            for node, answer in stats.items() for named in objects(answer, "topics")
            if text(named, "topic_name") == topic and named.get("paused") is not True
            for each in objects(named, "channels")
            if text(each, "channel_name") == channel and each.get("paused") is not True
            and number(each, "depth")]
