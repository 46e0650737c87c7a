"""What nsqd remembers of its topics and channels over a restart, beside the messages.

Pure; :mod:`nsqclient.devserver.persistence` writes it to ``nsqd.dat``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqclient.devserver.broker import Broker
from nsqclient.protocol.names import is_ephemeral


class SavedChannel(NamedTuple):
    """A channel that is remembered."""

    name: str
    paused: bool


class SavedTopic(NamedTuple):
    """A topic that is remembered."""

    name: str
    paused: bool
    channels: tuple[SavedChannel, ...]


def remember(broker: Broker) -> list[SavedTopic]:
    """Return every topic and channel that is not ephemeral, and whether it is paused."""
    return [
        SavedTopic(
            topic.name,
            topic.paused,
            tuple(
                SavedChannel(channel.name, channel.paused)
                for channel in topic.channels.values()
                if not is_ephemeral(channel.name)
            ),
        )
        for topic in broker.topics.values()
        if not is_ephemeral(topic.name)
    ]


def restore(broker: Broker, topics: Iterable[SavedTopic], now: float) -> None:
    """Make what was remembered; their backends bring the messages back."""
    for topic in topics:
        names = [channel.name for channel in topic.channels]
        made = broker.prepare_topic(topic.name, names, now, topic.paused)
        for channel in topic.channels:
            made.channels[channel.name].paused = channel.paused
