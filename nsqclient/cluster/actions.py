"""``ClusterActions``: create, change, delete, tombstone and publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Node, Nodes
from nsqclient.partitioned.http import QUERY_ARGUMENT, led_topics
from nsqclient.errors import ConfigError, LocalProtocolError, NSQError
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.protocol.events import is_partitioned_version

#: The error codes of nsqd and nsqlookupd for names that they do not have.
_ABSENT = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")
#: Stands for every nsqd.
EVERYWHERE = "*"

#: What can be done to a topic or a channel that exists.
CHANGES = ("pause", "unpause", "empty", "delete")

#: action on a topic of a partitioned cluster -> what to do instead.
_INSTEAD = {
    "create": 'call its leading nsqlookupd: curl -X POST "http://{lookupd}/topic/create?topic='
              '{topic}&partition_num=PARTITIONS&replicator=COPIES"',
    "delete": 'call its leading nsqlookupd: curl -X POST "http://{lookupd}/topic/delete?topic='
              '{topic}&partition=**"',
}
_CHANNELS_INSTEAD = "{action} each of its channels"
#: What to do if nsqd refuses a channel of a topic whose channels are registered.
_REGISTER = "POST /channel/{action}, with the arguments topic and channel, to {lookupd}"


class ActionError(NSQError):
    """Nothing was done: the target does not exist, or nsqd would reject the action."""

    def __init__(self, code: str, hint: str) -> None:
        super().__init__(f"{code}: {hint}")
        self.code = code  #: nsqd's error code, such as ``TOPIC_NOT_FOUND``
        self.hint = hint


class ClusterActions:
    """Runs actions. Each method returns the failures of the servers that did not carry it out.

    An nsqd without the topic or channel does not count as a failure while another nsqd has it. On a
    partitioned cluster an action on a channel is carried out on every partition.

    Raises:
        UpstreamError: every server failed.
        ActionError: nothing was done.

    Threads: any.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, topic: str, channel: str = "", node: str = "") -> list[ServerFailure]:
        """Create a topic, or a channel with its topic.

        With nsqlookupds, the topic is registered there, and an nsqd creates it when the first
        message is published. Without nsqlookupds, or with ``node``, the nsqds create it now.

        Args:
            node: one nsqd, or :data:`EVERYWHERE`.
        """
        def make(server: NsqdHTTP | NsqlookupdHTTP) -> None:
            server.create_topic(topic)
            if channel:
                server.create_channel(topic, channel)

        nodes, failures = self._targets("" if node == EVERYWHERE else node)
        if self._is_partitioned():
            return failures + self._each_partition("create", topic, channel, nodes, bool(node))
        if node or not self._cluster.has_lookupds:
            return failures + self._each(nodes, make)

        done, failures = self._cluster.each_lookupd(make, is_action=True)
        self._cluster.forget_nodes()
        if not done:
            raise UpstreamError("nsqlookupd", failures)
        if channel:
            nodes, more = self._targets("", topic)
            failures += [each for each in more if each not in failures]
            if nodes:
                failures += self._each(nodes, lambda nsqd: nsqd.create_channel(topic, channel))
        return failures

    def change(
        self, action: str, topic: str, channel: str = "", node: str = "", *, waits: bool = True
    ) -> list[ServerFailure]:
        """Apply one of :data:`CHANGES` to a topic or channel. ``delete`` starts at the nsqlookupds.

        Args:
            node: one nsqd; empty: all that may have the topic.
            waits: also ask servers that recently did not answer.
        """
        nodes, failures = self._targets(node, topic)
        if self._is_partitioned():
            return failures + self._each_partition(action, topic, channel, nodes, bool(node), waits)
        registered = False
        if action == "delete" and not node and self._cluster.has_lookupds:
            registered, more = self._unregister(topic, channel)
            failures += [each for each in more if each not in failures]

        def change(nsqd: NsqdHTTP) -> None:
            method = getattr(nsqd, f"{action}_{'channel' if channel else 'topic'}")
            method(topic, channel) if channel else method(topic)

        return failures + self._each(nodes, change, registered or bool(failures), waits)

    def tombstone(self, topic: str, node: str) -> list[ServerFailure]:
        """Hide an nsqd from lookups of a topic for a while, and delete the topic on that nsqd."""
        nodes, failures = self._targets(node)
        _, more = self._cluster.each_lookupd(
            lambda lookupd: lookupd.tombstone_topic(topic, node), is_action=True
        )
        return failures + more + self._each(nodes, lambda nsqd: nsqd.delete_topic(topic))

    def publish(self, topic: str, body: bytes, node: str = "", defer: float | None = None) -> str:
        """Publish to an nsqd, the given one or the first that answers; return its address."""
        chosen = self._choose(topic, node)

        def publish(nsqd: NsqdHTTP) -> str:
            try:
                nsqd.pub(topic, body, defer=defer or None)
            except (LocalProtocolError, ConfigError) as exc:
                return str(exc)
            return ""

        done, failures = self._cluster.each([chosen], publish, is_action=True)
        if not done:
            raise UpstreamError("nsqd", failures)
        if done[chosen]:
            raise ActionError("INVALID_BODY", done[chosen])
        return chosen.address

    # -- internal

    def _targets(self, node: str, topic: str = "") -> tuple[list[Node], list[ServerFailure]]:
        found = self._cluster.nodes()
        if node:
            return [node_named(found, node)], []
        nodes = list(found.nodes)
        if topic and self._cluster.has_lookupds:
            nodes = [each for each in nodes if topic in each.topics]
        return nodes, [each for each in found.failures if not each.is_doubt]

    def _is_partitioned(self) -> bool:
        return any(is_partitioned_version(node.version)
                   for node in self._cluster.recent_nodes().nodes)

    def _each_partition(
        self, action: str, topic: str, channel: str, nodes: list[Node], is_one: bool,
        waits: bool = True,
    ) -> list[ServerFailure]:
        """Act on a channel in each partition, or (``is_one``) in the partitions of one nsqd."""
        lookupd = next(iter(self._cluster.lookupds()), "NSQLOOKUPD")
        where = {"lookupd": lookupd, "topic": topic, "channel": channel, "action": action}
        if not channel:
            instead = _INSTEAD.get(action, _CHANNELS_INSTEAD).format_map(where)
            raise ActionError("PARTITIONED_CLUSTER", f"to {action} topic {topic}, {instead}")
        led, failures = self._cluster.each(
            nodes, lambda nsqd: led_topics(nsqd.stats_json(
                topic, include_clients=False), topic), is_action=waits)
        if not is_one:
            failures += self._without_leader(topic, set().union(*led.values()))
        calls = {
            (node, number): (f"{node.address} partition {number}", node, partial(
                _act_on_channel, action, topic, channel, {QUERY_ARGUMENT: str(number)}))
            for node, partitions in led.items() for number, found in partitions.items()
            if action == "create" or found.channel(channel) is not None}
        try:
            done, failed = self._cluster.run(calls, is_action=waits)
        finally:
            self._cluster.forget_nodes()
        failures += [
            each._replace(reason=f"{each.reason}; {_REGISTER.format_map(where)}")
            if each.status == 403 else each for each in failed if each.code not in _ABSENT]
        if not done:
            if failures:
                raise UpstreamError("partition", failures)
            code = "CHANNEL_NOT_FOUND" if any(led.values()) else "TOPIC_NOT_FOUND"
            raise ActionError(code, "no partition has it")
        return failures

    def _without_leader(self, topic: str, led: set[int]) -> list[ServerFailure]:
        found, _ = self._cluster.each_lookupd(lambda lookupd: lookupd.lookup(topic, "r"))
        counts = [each.meta.partition_num for each in found.values() if each.meta is not None]
        return [
            ServerFailure(
                "partition", f"{number} of {topic}", "none of the nsqds that answered leads it")
            for number in range(max(counts, default=0)) if number not in led]

    def _unregister(self, topic: str, channel: str) -> tuple[bool, list[ServerFailure]]:
        """Delete a topic or channel at all nsqlookupds; return True if one of them had it."""
        def unregister(lookupd: NsqlookupdHTTP) -> bool:
            if channel:
                lookupd.delete_channel(topic, channel)
                return True
            # nsqlookupd gives the same answer whether or not it had the topic.
            known = topic in lookupd.topics()
            lookupd.delete_topic(topic)
            return known

        answers, failures = self._cluster.each_lookupd(unregister, is_action=True)
        return any(answers.values()), [each for each in failures if each.code not in _ABSENT]

    def _each(
        self, nodes: Iterable[Node], act: Callable[[NsqdHTTP], None], done_elsewhere: bool = False,
        waits: bool = True,
    ) -> list[ServerFailure]:
        try:
            done, failures = self._cluster.each(nodes, act, is_action=waits)
        finally:
            self._cluster.forget_nodes()
        serious = [failure for failure in failures if failure.code not in _ABSENT]
        if not done and not done_elsewhere:
            if serious:
                raise UpstreamError("nsqd", serious)
            code = failures[0].code if failures else "TOPIC_NOT_FOUND"
            raise ActionError(code, "no nsqd has it")
        return serious

    def _choose(self, topic: str, address: str) -> Node:
        found = self._cluster.recent_nodes(progressive=True)
        if address:
            return node_named(found, address)
        responsive, failures = self._cluster.each(
            found.nodes, lambda nsqd: nsqd.ping(), progressive=True)
        if not responsive:
            raise UpstreamError("nsqd", [*found.failures, *failures])
        having = [node for node in responsive if topic in node.topics]
        return (having or list(responsive))[0]


def _act_on_channel(
    action: str, topic: str, channel: str, query: dict[str, str], nsqd: NsqdHTTP
) -> None:
    getattr(nsqd, f"{action}_channel")(topic, channel, query)


def node_named(found: Nodes, address: str) -> Node:
    node = found.named(address)
    if node is None:
        raise ActionError("NODE_NOT_FOUND", f"there is no nsqd {address}")
    return node
