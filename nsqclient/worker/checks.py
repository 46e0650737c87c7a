"""``check_group``: what ``--check`` does once the handlers are imported: it connects, and ends.

No message is taken. Where nsqd asks for authentication, the right to consume is seen only by a SUB,
which creates topic and channel: so it is sent for channels that the nsqd has, with RDY 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from nsqclient.config import Config
from nsqclient.connection.probe import probe
from nsqclient.consumer.consumer import Consumer
from nsqclient.discovery import lookup
from nsqclient.display import counted, without_password
from nsqclient.errors import NSQError
from nsqclient.hints import with_hint
from nsqclient.worker.group import ConsumerGroup

if TYPE_CHECKING:
    from nsqclient.http.models import TopicStats

#: What leaves no trace but its end: nsqd deletes it when its last consumer leaves.
_EPHEMERAL = "#ephemeral"


def check_group(group: ConsumerGroup, report: Callable[[str], None]) -> bool:
    """Connect to every nsqd and nsqlookupd of a group; return whether all is well.

    Args:
        report: called with a line for each handler and server, which begins with OK, WRONG or,
            for what could not be checked, NOTE.

    Blocks: at most ``dial_timeout`` and ``read_timeout`` for each server, and for each handler of
    an nsqd that asks for authentication.
    """
    for line in group.banner():
        if line.startswith("consuming "):
            report(f"OK     {line}")
    is_well = True
    topics = list(dict.fromkeys(consumer.topic for consumer in group.consumers))
    listed: set[str] = set()
    nsqds = list(group.addresses.get("nsqd_tcp_addresses", ()))
    for lookupd in group.addresses.get("lookupd_http_addresses", ()):
        shown = f"nsqlookupd {without_password(lookupd)}"
        for topic in topics:
            try:
                found = lookup(lookupd, topic, group.config)
            except NSQError as exc:
                report(f"WRONG  {shown}: {with_hint(exc, shown)}")
                is_well = False
                break
            nsqds += found
            listed |= {topic} if found else set()
            report(f"OK     {shown} lists {counted(len(found), 'nsqd')} for {topic}")
    for topic in topics if group.addresses.get("lookupd_http_addresses") and is_well else ():
        if topic not in listed:
            report(f"NOTE   no nsqlookupd lists the topic {topic}: check its spelling, or publish"
                   " to it")
    guarded = {}
    for address in dict.fromkeys(nsqds):
        try:
            seen = probe(address, group.config, _timeout(group.config))
        except NSQError as exc:
            report(f"WRONG  nsqd {address}: {with_hint(exc, address)}")
            is_well = False
        else:
            report(f"OK     nsqd {address}")
            found_topics = _topics_of(address, topics, group.config)
            for each in found_topics.values():
                if each.waits_for_channel:
                    waiting = counted(each.depth, "waiting message")
                    report(f"NOTE   nsqd {address}: {each.name} has {waiting} and no channel: the"
                           " first channel takes them")
            if seen.settings.auth_required and not seen.is_partitioned:
                guarded[address] = found_topics
    return _check_rights(group, guarded, report) and is_well


def _check_rights(
    group: ConsumerGroup, nsqds: Mapping[str, Mapping[str, TopicStats]],
    report: Callable[[str], None],
) -> bool:
    """Subscribe where that creates and deletes nothing; return whether nsqd permits it.

    Args:
        nsqds: those that ask for authentication, each with its topics.
    """
    is_well = True
    unchecked = {id(consumer): consumer for consumer in group.consumers} if nsqds else {}
    for address, topics in nsqds.items():
        for consumer in _with_channel(topics, group):
            unchecked.pop(id(consumer), None)
            place = f"{consumer.topic}/{consumer.channel}"
            try:
                probe(address, consumer.config, _timeout(consumer.config),
                      (consumer.topic, consumer.channel))
            except NSQError as exc:
                report(f"WRONG  nsqd {address}, {place}: {with_hint(exc, address)}")
                is_well = False
            else:
                report(f"OK     nsqd {address} permits to consume {place}")
    for consumer in unchecked.values():
        report(f"NOTE   whether nsqd permits to consume {consumer.topic}/{consumer.channel} is not"
               " known: no nsqd shows that it has the channel, and to subscribe would create it")
    return is_well


def _with_channel(
    topics: Mapping[str, TopicStats], group: ConsumerGroup
) -> Iterator[Consumer]:
    """Yield the consumers whose channel an nsqd has, and keeps when a consumer leaves."""
    for consumer in group.consumers:
        if consumer.topic.endswith(_EPHEMERAL) or consumer.channel.endswith(_EPHEMERAL):
            continue
        topic = topics.get(consumer.topic)
        if topic is not None and topic.channel(consumer.channel) is not None:
            yield consumer


def _topics_of(address: str, topics: Iterable[str], config: Config) -> dict[str, TopicStats]:
    """Return the topics that an nsqd has; none where it is not at the usual HTTP port."""
    # Here, since requests takes longer to import than the rest of the library.
    from nsqclient.http.nsqd import NsqdHTTP, find_http_address

    try:
        beside = find_http_address(address, config, _timeout(config))
        with NsqdHTTP(beside, config) as client:
            found = (client.stats(topic, include_clients=False).topic(topic) for topic in topics)
            return {each.name: each for each in found if each is not None}
    except NSQError:
        return {}  # it is not there, or for others


def _timeout(config: Config) -> float:
    return config.dial_timeout + config.read_timeout
