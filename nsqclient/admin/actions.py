"""``Actions``: create, delete, pause, empty and tombstone, on a cluster or on one nsqd.

An nsqd that does not have what an action is about is no failure while another one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nsqclient.admin.asking import Failure
from nsqclient.admin.cluster import Cluster, Node, UpstreamError
from nsqclient.errors import NSQError
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP

#: nsqd's and nsqlookupd's words for "no such thing".
_ABSENT = ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")
#: As a node: every nsqd.
EVERYWHERE = "*"

Change = Callable[[NsqdHTTP, str, str], None]


def _delete(nsqd: NsqdHTTP, topic: str, channel: str) -> None:
    nsqd.delete_channel(topic, channel) if channel else nsqd.delete_topic(topic)


def _pause(nsqd: NsqdHTTP, topic: str, channel: str) -> None:
    nsqd.pause_channel(topic, channel) if channel else nsqd.pause_topic(topic)


def _unpause(nsqd: NsqdHTTP, topic: str, channel: str) -> None:
    nsqd.unpause_channel(topic, channel) if channel else nsqd.unpause_topic(topic)


def _empty(nsqd: NsqdHTTP, topic: str, channel: str) -> None:
    nsqd.empty_channel(topic, channel) if channel else nsqd.empty_topic(topic)


#: What a POST to a topic or channel may ask for.
CHANGES: dict[str, Change] = {"pause": _pause, "unpause": _unpause, "empty": _empty}


class NotFound(NSQError):
    """There is no such topic, channel or node. ``code`` is the word for it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Actions:
    """Carries actions out. Each returns the failures of those servers that did not take part.

    Every method raises UpstreamError when nobody did, and NotFound when there is nothing to act on.
    Threads: any.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, topic: str, channel: str = "", node: str = "") -> list[Failure]:
        """Make a topic, or a channel with its topic.

        With nsqlookupds it is registered there, and an nsqd makes it with its first message;
        without them, or with ``node``, the nsqds make it now.

        Args:
            node: one nsqd, or :data:`EVERYWHERE`.
        """
        def make(nsqd: NsqdHTTP) -> None:
            nsqd.create_topic(topic)
            if channel:
                nsqd.create_channel(topic, channel)

        if node or not self._cluster.has_lookupds:
            nodes, failures = self._targets("" if node == EVERYWHERE else node)
            return failures + self._each(nodes, make)

        def register(lookupd: NsqlookupdHTTP) -> None:
            lookupd.create_topic(topic)
            if channel:
                lookupd.create_channel(topic, channel)

        done, failures = self._cluster.each_lookupd(register, is_action=True)
        self._cluster.forget_nodes()
        if not done:
            raise UpstreamError("nsqlookupd", failures)
        if channel:
            nodes, more = self._targets("", topic)
            failures += [each for each in more if each not in failures]
            if nodes:
                failures += self._each(nodes, lambda nsqd: nsqd.create_channel(topic, channel))
        return failures

    def change(self, action: str, topic: str, channel: str = "", node: str = "") -> list[Failure]:
        """Pause, unpause or empty a topic or channel: a key of :data:`CHANGES`."""
        change = CHANGES[action]
        nodes, failures = self._targets(node, topic)
        return failures + self._each(
            nodes, lambda nsqd: change(nsqd, topic, channel), bool(failures)
        )

    def delete(self, topic: str, channel: str = "", node: str = "") -> list[Failure]:
        """Delete a topic or channel with its messages: at nsqlookupds first, then at nsqds."""
        nodes, failures = self._targets(node, topic)
        registered = False
        if not node and self._cluster.has_lookupds:
            registered, more = self._unregister(topic, channel)
            failures += [each for each in more if each not in failures]
        return failures + self._each(
            nodes, lambda nsqd: _delete(nsqd, topic, channel), registered or bool(failures)
        )

    def tombstone(self, topic: str, node: str) -> list[Failure]:
        """Hide a topic's nsqd from lookups for a while, and delete the topic there."""
        nodes, failures = self._targets(node)
        _, more = self._cluster.each_lookupd(
            lambda lookupd: lookupd.tombstone_topic(topic, node), is_action=True
        )
        return failures + more + self._each(nodes, lambda nsqd: nsqd.delete_topic(topic))

    # -- inside

    def _targets(self, node: str, topic: str = "") -> tuple[list[Node], list[Failure]]:
        """The nsqds to act on: one, or all that may have a topic."""
        found = self._cluster.nodes()
        if node:
            named = found.named(node)
            if named is None:
                raise NotFound("NODE_NOT_FOUND", f"there is no nsqd {node}")
            return [named], []
        nodes = list(found.nodes)
        if topic and self._cluster.has_lookupds:
            nodes = [each for each in nodes if topic in each.topics or found.is_cut]
        return nodes, [each for each in found.failures if not each.is_doubt]

    def _unregister(self, topic: str, channel: str) -> tuple[bool, list[Failure]]:
        """Tell nsqlookupds to forget it; return whether one of them knew it."""
        def forget(lookupd: NsqlookupdHTTP) -> bool:
            if channel:
                lookupd.delete_channel(topic, channel)
                return True
            # It answers the same, whether it knew the topic or not.
            known = topic in lookupd.topics()
            lookupd.delete_topic(topic)
            return known

        answers, failures = self._cluster.each_lookupd(forget, is_action=True)
        return any(answers.values()), [each for each in failures if each.code not in _ABSENT]

    def _each(
        self, nodes: Iterable[Node], act: Callable[[NsqdHTTP], None], done_elsewhere: bool = False
    ) -> list[Failure]:
        """Act on nsqds; one that does not know the topic or channel is none of the failures."""
        try:
            done, failures = self._cluster.each(nodes, act, is_action=True)
        finally:
            self._cluster.forget_nodes()
        serious = [failure for failure in failures if failure.code not in _ABSENT]
        if not done and not done_elsewhere:
            if serious:
                raise UpstreamError("nsqd", serious)
            code = failures[0].code if failures else "TOPIC_NOT_FOUND"
            raise NotFound(code, "no nsqd has it")
        return serious
