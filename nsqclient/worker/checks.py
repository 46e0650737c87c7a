"""``check_group``: what ``--check`` does once the handlers are imported: it connects, and ends.

No message is taken. Where nsqd asks for authentication, the right to consume is seen only by a SUB,
which creates topic and channel: so it is sent for channels that the nsqd has, with RDY 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsqclient.config import Config
from nsqclient.connection.probe import probe
from nsqclient.consumer.consumer import Consumer
from nsqclient.discovery import lookup
from nsqclient.display import counted
from nsqclient.errors import NSQError
from nsqclient.hints import with_hint
from nsqclient.runtime.addresses import format_address, parse_address
from nsqclient.sanitize import without_password
from nsqclient.worker.group import ConsumerGroup

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
    nsqds = list(group.addresses.get("nsqd_tcp_addresses", ()))
    for lookupd in group.addresses.get("lookupd_http_addresses", ()):
        shown = f"nsqlookupd {without_password(lookupd)}"
        for topic in dict.fromkeys(consumer.topic for consumer in group.consumers):
            try:
                found = lookup(lookupd, topic, group.config)
            except NSQError as exc:
                report(f"WRONG  {shown}: {with_hint(exc, shown)}")
                is_well = False
                break
            nsqds += found
            report(f"OK     {shown} lists {counted(len(found), 'nsqd')} for {topic}")
    guarded = []
    for address in dict.fromkeys(nsqds):
        try:
            seen = probe(address, group.config, _timeout(group.config))
        except NSQError as exc:
            report(f"WRONG  nsqd {address}: {with_hint(exc, address)}")
            is_well = False
        else:
            report(f"OK     nsqd {address}")
            if seen.settings.auth_required and not seen.is_partitioned:
                guarded.append(address)
    return _check_rights(group, guarded, report) and is_well


def _check_rights(
    group: ConsumerGroup, nsqds: list[str], report: Callable[[str], None]
) -> bool:
    """Subscribe where that creates and deletes nothing; return whether nsqd permits it."""
    is_well = True
    unchecked = {id(consumer): consumer for consumer in group.consumers} if nsqds else {}
    for address in nsqds:
        for consumer in _with_channel(address, group):
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


def _with_channel(address: str, group: ConsumerGroup) -> Iterator[Consumer]:
    """Yield the consumers whose channel an nsqd has, and keeps when a consumer leaves."""
    # Here, since requests takes longer to import than the rest of the library.
    from nsqclient.http.nsqd import NsqdHTTP

    try:
        with NsqdHTTP(_http_address(address), group.config) as client:
            if client.info().tcp_port != parse_address(address)[1]:
                return  # another nsqd's
            for consumer in group.consumers:
                if consumer.topic.endswith(_EPHEMERAL) or consumer.channel.endswith(_EPHEMERAL):
                    continue
                topic = client.stats(
                    consumer.topic, consumer.channel, include_clients=False).topic(consumer.topic)
                if topic is not None and any(
                    channel.name == consumer.channel for channel in topic.channels
                ):
                    yield consumer
    except NSQError:
        return  # it is not there, or for others


def _http_address(address: str) -> str:
    """Return where the HTTP API of an nsqd should be: beside its TCP port, as by default."""
    host, port = parse_address(address)
    return format_address(host, port + 1)


def _timeout(config: Config) -> float:
    return config.dial_timeout + config.read_timeout
