"""``MessagePeeker`` shows messages; ``Replayer`` publishes all dead letters of a channel again.

NSQ cannot read a channel's backlog without consuming it. So a peek creates an ephemeral channel,
which gets a copy of each message published from then on. ``look_guard`` may exclude an nsqd.

A *loan* shows the messages that wait in a channel without consumers: they are received, held while
they are shown, and requeued. Their attempts go up by one.

A replay finishes a letter after nsqd has stored its body: an interrupted replay causes duplicates
and no loss. If a letter cannot be published, the replay ends: nsqd would redeliver it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from nsqclient.admin.access_control import RequestError
from nsqclient.admin.aggregate import Values, number, objects, text
from nsqclient.admin.settings import AdminSettings
from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.consumer.connections import NsqdSources
from nsqclient.dead_letters import DeadLetter
from nsqclient.cluster.look_guard import LookGuard, LookingConsumer, refusal
from nsqclient.errors import NSQError
from nsqclient.cluster.ask_all import ServerFailure
from nsqclient.cluster.cluster import Cluster, Node
from nsqclient.message import Message
from nsqclient.partitioned.producer import Producer
from nsqclient.partitioned.http import fetch_stats
from nsqclient.protocol.commands import DeliveredBody
from nsqclient.protocol.peer_json import InvalidJson, read_json
from nsqclient.runtime.delays import RateLimiter
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.admin")

_NEW_CHANNEL = "#ephemeral"
MAX_MESSAGES = 100
MAX_SECONDS = 30.0
MAX_BODY = 64 * 1024
#: Maximum concurrent peeks: each creates a channel on every nsqd of the topic.
_MAX_PEEKS = 4


Steps = Generator[dict[str, Any], None, None]


class Plan(NamedTuple):
    """The nsqds of a peek, and the reasons why others are left out."""

    nodes: list[Node]
    notes: list[str]
    lender: str  #: the channel of a loan; empty: copies through an ephemeral channel


class _Found(NamedTuple):
    values: list[tuple[Node, Values]]
    answered: list[Node]
    failures: list[ServerFailure]


def _find(cluster: Cluster, topic: str, channel: str) -> _Found:
    """Ask every nsqd for a topic, or for a channel of it. Raises UpstreamError."""
    stats, failures = cluster.stats(
        cluster.recent_nodes().nodes, topic, channel or None, progressive=True)
    found = [(node, each) for node, answer in stats.items()
             for each in objects(answer, "topics") if text(each, "topic_name") == topic]
    if channel:
        found = [(node, one) for node, each in found for one in objects(each, "channels")
                 if text(one, "channel_name") == channel]
    if not found:
        what = "channel" if channel else "topic"
        raise RequestError(
            404, f"{what.upper()}_NOT_FOUND", f"no nsqd has the {what} {channel or topic}")
    return _Found(found, list(stats), failures)


class MessagePeeker:
    """Runs the peeks of one admin page. Threads: any."""

    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._free = threading.Semaphore(_MAX_PEEKS)
        self._closing = threading.Event()

    def plan(self, topic: str, channel: str = "") -> Plan:
        """Choose the nsqds that a peek does not disturb. Raises UpstreamError.

        ``channel``: the channel of a loan; empty: a peek through an ephemeral channel.
        """
        found = _find(self._cluster, topic, channel)
        nodes, notes = [], [failure.text() for failure in found.failures]
        for node, each in found.values:
            if each.get("paused") is True:
                notes.append(f"it is paused on {node.address}: no messages arrive from there")
            if channel:
                if number(each, "client_count"):
                    raise RequestError(
                        409, "CHANNEL_IN_USE", f"{channel} has consumers: they would miss the"
                        " messages that are shown")
                nodes += [node] if number(each, "depth") else []
                continue
            names = [text(values, "channel_name") for values in objects(each, "channels")]
            reason = refusal(topic, _NEW_CHANNEL, names)
            if reason:
                notes.append(f"nsqd {node.address} is left out: {reason}")
            else:
                nodes.append(node)
        if not (nodes or channel):
            raise RequestError(409, "NO_CHANNEL", "; ".join(notes))
        return Plan(nodes, notes, channel)

    def run(self, topic: str, plan: Plan, count: int, seconds: float) -> Steps:
        """Yield the ``nodes`` and ``notes`` of the plan, then messages as they arrive.

        Yields at most ``count`` messages, for ``seconds``, and empty dicts while none arrives.
        """
        if not self._free.acquire(blocking=False):
            raise RequestError(429, "TOO_MANY_PEEKS", f"{_MAX_PEEKS} peeks are under way:"
                               " wait for one to end")
        try:
            yield {"nodes": [node.address for node in plan.nodes], "notes": plan.notes}
            if plan.nodes:  # else the channel is empty everywhere
                yield from self._messages(topic, plan, count, seconds)
        finally:
            self._free.release()

    def _messages(self, topic: str, plan: Plan, count: int, seconds: float) -> Steps:
        until = time.monotonic() + seconds
        channel = plan.lender or f"peek-{uuid.uuid4().hex[:8]}{_NEW_CHANNEL}"
        nodes = {node.tcp_reached_at: node for node in plan.nodes}
        consumer, query = make_reader(
            self._cluster, self._settings, topic, channel, plan.nodes,
            # Held messages stay in flight, and one nsqd may have all of them.
            count * len(plan.nodes) if plan.lender else max(len(plan.nodes), min(count, 25)))
        messages = consumer.take(
            count, query if plan.lender else None, holds=bool(plan.lender),
            is_over=lambda: time.monotonic() >= until or self._closing.is_set())
        try:
            with contextlib.closing(messages):
                for message in messages:
                    # Yield without messages too: only a write detects a disconnected browser.
                    yield {} if message is None else _shown(
                        message, nodes[message.nsqd_address].address)
        except NSQError as exc:  # for example, the channel was deleted meanwhile
            logger.info("peek at %s: %s", topic, exc)
        finally:
            consumer.stop(0.5)

    def close(self) -> None:
        self._closing.set()


def make_reader(
    cluster: Cluster, settings: AdminSettings, topic: str, channel: str, nodes: Sequence[Node],
    max_in_flight: int,
) -> tuple[LookingConsumer, DepthQuery]:
    config = settings.consumer_config.replace(
        user_agent=f"nsqadmin/{__version__} nsqclient/{__version__}", max_in_flight=max_in_flight,
        max_attempts=0)
    clients = {node.tcp_reached_at: cluster.nsqd(node) for node in nodes}
    consumer = LookingConsumer(
        topic, channel, nsqd_tcp_addresses=list(clients), config=config,
        # Checks before each subscription: an nsqd may have lost its channels meanwhile.
        guard=LookGuard(topic, channel, lambda address: fetch_stats(
            clients[address], topic).topic(topic)),
        on_error=lambda error: logger.info("%s/%s: %s", topic, channel, error),
    )
    query = DepthQuery(
        topic, channel, settings.http_config, NsqdSources(list(clients)), creates_channel=False,
        http_of={address: client.address for address, client in clients.items()})
    return consumer, query


def _shown(message: Message, node: str) -> dict[str, Any]:
    letter = DeadLetter.parse(message.body)
    body = letter.body[:MAX_BODY]
    shown: dict[str, Any] = {
        "id": str(message.id),
        "timestamp": message.timestamp // 1_000_000,  # in milliseconds
        "attempts": message.attempts,
        "node": node or message.nsqd_address,
        "size": len(letter.body),
        "truncated": len(letter.body) > MAX_BODY,
    }
    if letter.body is not message.body:  # it came in an envelope
        shown["dead_letter"] = letter.facts()
    try:
        # The cut may lie within a character.
        shown["text"] = body.decode("utf-8", "ignore" if shown["truncated"] else "strict")
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(body).decode("ascii")
        return shown
    if not shown["truncated"]:
        try:
            value = read_json(body)
        except InvalidJson:
            pass
        else:
            if isinstance(value, (dict, list)):
                shown["pretty"] = json.dumps(value, indent=2, ensure_ascii=False)
    return shown


#: Maximum messages in flight. Low, because those left at the end are requeued.
_MAX_IN_FLIGHT = 10
#: Seconds that a letter may wait in flight: nsqd delivers it again after 60.
_LONGEST = 20.0
_CHECK_INTERVAL = 0.5
_STOP_TIMEOUT = 2.0
_DEAD_LETTER_TOPIC = re.compile(r"(.+)[._-](dead|dead[_-]?letters?|dlq)", re.IGNORECASE)


def source_of_dead_letters(topic: str) -> str:
    """Return the topic whose dead letters a topic holds, judged by its name; empty if unknown."""
    found = _DEAD_LETTER_TOPIC.fullmatch(topic)
    return found[1] if found else ""


class Replayer:
    """Runs the replays of one admin page, one at a time. Threads: any."""

    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._running = threading.Lock()
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()

    def run(self, topic: str, channel: str, target: str, rate: float) -> Steps:
        """Replay the messages of a channel; yield ``wanted``, then ``done`` or ``error``.

        ``rate``: messages per second, on average. Raises UpstreamError.
        """
        found = _find(self._cluster, topic, channel)
        depths = {node: number(each, "depth") + number(each, "deferred_count")
                  for node, each in found.values}
        if not self._running.acquire(blocking=False):
            raise RequestError(429, "REPLAY_RUNNING", "another replay is under way: wait for it")
        sources = [node for node, depth in depths.items() if depth]
        targets = [node.tcp_reached_at for node in found.answered]
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
        with contextlib.closing(messages):
            for message in messages:
                while message is not None and not limiter.take(1, time.monotonic()):
                    if self._closing.wait(min(limiter.wait(), _CHECK_INTERVAL)):
                        return
                    yield {}
                if message is None:
                    yield {}  # writing detects that the browser has disconnected
                    continue
                # Not to the topic named in the letter: anybody may have written it.
                body = DeadLetter.parse(message.body).body
                try:
                    producer.publish(target, DeliveredBody(body))
                except NSQError as exc:
                    yield {"error": f"not replayed to {target}: {exc}"}
                    return  # the message is requeued
                message.finish()
                done += 1
                yield {"done": done}
