"""``ClusterActions``: create, change, delete, tombstone and publish, on a cluster or on one nsqd.

An nsqd without the topic or channel of an action is no failure while another nsqd has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nsqclient.errors import ConfigError, LocalProtocolError, NSQError
from nsqclient.cluster.ask_all import Failure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Node, Nodes
from nsqclient.http.nsqd import NsqdHTTP
from nsqclient.http.nsqlookupd import NsqlookupdHTTP

#: The error codes of nsqd and nsqlookupd for names that they do not have.
_ABSENT = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")
#: Stands for every nsqd.
EVERYWHERE = "*"

#: What can be done to a topic or a channel that exists.
CHANGES = ("pause", "unpause", "empty", "delete")


class ActionError(NSQError):
    """Nothing was done: no server has the node, topic or channel, or nsqd would reject it."""

    def __init__(self, code: str, hint: str) -> None:
        super().__init__(f"{code}: {hint}")
        self.code = code  #: ``TOPIC_NOT_FOUND``, ...; as of nsqd
        self.hint = hint


class ClusterActions:
    """Carries actions out. Each returns the failures of servers that did not take part.

    Raises:
        UpstreamError: every server failed.
        ActionError: nothing was done.

    Threads: any.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, topic: str, channel: str = "", node: str = "") -> list[Failure]:
        """Make a topic, or a channel with its topic.

        With nsqlookupds it is registered there, and an nsqd creates it with its first message.
        Without nsqlookupds, or with ``node``, the nsqds create it now.

        Args:
            node: one nsqd, or :data:`EVERYWHERE`.
        """
        def make(server: NsqdHTTP | NsqlookupdHTTP) -> None:
            server.create_topic(topic)
            if channel:
                server.create_channel(topic, channel)

        if node or not self._cluster.has_lookupds:
            nodes, failures = self._targets("" if node == EVERYWHERE else node)
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
    ) -> list[Failure]:
        """Do one of :data:`CHANGES` to a topic or channel; ``delete`` at nsqlookupds first.

        Args:
            node: one nsqd; empty: all that may have the topic.
            waits: for servers that kept silent a moment ago; else they are failures at once.
        """
        nodes, failures = self._targets(node, topic)
        registered = False
        if action == "delete" and not node and self._cluster.has_lookupds:
            registered, more = self._unregister(topic, channel)
            failures += [each for each in more if each not in failures]

        def change(nsqd: NsqdHTTP) -> None:
            method = getattr(nsqd, f"{action}_{'channel' if channel else 'topic'}")
            method(topic, channel) if channel else method(topic)

        return failures + self._each(nodes, change, registered or bool(failures), waits)

    def tombstone(self, topic: str, node: str) -> list[Failure]:
        """Hide a topic's nsqd from lookups for a while, and delete the topic there."""
        nodes, failures = self._targets(node)
        _, more = self._cluster.each_lookupd(
            lambda lookupd: lookupd.tombstone_topic(topic, node), is_action=True
        )
        return failures + more + self._each(nodes, lambda nsqd: nsqd.delete_topic(topic))

    def publish(self, topic: str, body: bytes, node: str = "", defer: float | None = None) -> str:
        """Publish to an nsqd, the given one or the first that answers; return its address.

        Args:
            defer: seconds.
        """
        chosen = self._choose(topic, node)

        def publish(nsqd: NsqdHTTP) -> str:
            """Return why nsqd would reject the message; empty: it is stored."""
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

    # -- inside

    def _targets(self, node: str, topic: str = "") -> tuple[list[Node], list[Failure]]:
        """Return the nsqds to act on: one, or all that may have a topic."""
        found = self._cluster.nodes()
        if node:
            return [node_named(found, node)], []
        nodes = list(found.nodes)
        if topic and self._cluster.has_lookupds:
            nodes = [each for each in nodes if topic in each.topics]
        return nodes, [each for each in found.failures if not each.is_doubt]

    def _unregister(self, topic: str, channel: str) -> tuple[bool, list[Failure]]:
        """Delete it at the nsqlookupds; return whether one of them had it."""
        def unregister(lookupd: NsqlookupdHTTP) -> bool:
            if channel:
                lookupd.delete_channel(topic, channel)
                return True
            # Its answer is the same, whether it had the topic or not.
            known = topic in lookupd.topics()
            lookupd.delete_topic(topic)
            return known

        answers, failures = self._cluster.each_lookupd(unregister, is_action=True)
        return any(answers.values()), [each for each in failures if each.code not in _ABSENT]

    def _each(
        self, nodes: Iterable[Node], act: Callable[[NsqdHTTP], None], done_elsewhere: bool = False,
        waits: bool = True,
    ) -> list[Failure]:
        """Act on nsqds; an nsqd without the topic or channel is no failure."""
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
        """Return the nsqd to publish to."""
        found = self._cluster.recent_nodes(progressive=True)
        if address:
            return node_named(found, address)
        responsive, failures = self._cluster.each(
            found.nodes, lambda nsqd: nsqd.ping(), progressive=True)
        if not responsive:
            raise UpstreamError("nsqd", [*found.failures, *failures])
        having = [node for node in responsive if topic in node.topics]
        return (having or list(responsive))[0]


def node_named(found: Nodes, address: str) -> Node:
    """Return the node of this name, or raise ActionError."""
    node = found.named(address)
    if node is None:
        raise ActionError("NODE_NOT_FOUND", f"there is no nsqd {address}")
    return node
