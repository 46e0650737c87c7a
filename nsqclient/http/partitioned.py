"""Reads what a partitioned nsqlookupd answers beside a stock one: partitions, metadata, its kind.

Keys of partitions are decimal strings, ports in ``/listlookup`` are strings, and a map may be
incomplete, empty or null. Source: youzan/nsq 0.3.7-HA, ``nsqlookupd/http.go``.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from nsqclient.http.answers import LookupdNode, Producer
from nsqclient.http.fields import Fields, Malformed
from nsqclient.partitions.routes import TopicMeta
from nsqclient.protocol.partition_commands import MAX_PARTITION
from nsqclient.runtime.digits import read_digits
from nsqclient.runtime.line_limit import LineLimit
from nsqclient.runtime.transport import format_address

#: It becomes a part of a URL that is asked, so it must be nothing else than a host.
_HOST = re.compile(r"[\w.:-]{1,255}", re.ASCII)
#: Of a partition's number or a port; whether these are in range is seen then.
_DIGITS = 10

logger = logging.getLogger("nsqclient.http")
_unusable = LineLimit(logger)


def is_partitioned(data: Any) -> bool:
    """Tell whether an answer to ``/lookup`` is one of a partitioned nsqlookupd."""
    return isinstance(data, dict) and ("partitions" in data or "meta" in data)


def read_partitions(fields: Fields) -> dict[int, Producer]:
    """Read the leaders; one that cannot be read must not hide the others."""
    found = {}
    for key, value in fields.mapping("partitions").items():
        try:
            number = read_digits(key, _DIGITS)
            if number is None or number > MAX_PARTITION:
                raise Malformed(f"partition {key!r:.40}")
            found[number] = Producer.read(Fields(value, f"partition {key}"))
        except Malformed as exc:
            logger.log(
                _unusable.level(logging.WARNING),
                "a nsqlookupd lists an unusable partition: %s", exc,
            )
    return found


def read_meta(fields: Fields) -> TopicMeta | None:
    """Read the metadata of a topic; None where there is none."""
    if not fields.has("meta"):
        return None
    meta = fields.object("meta")
    return TopicMeta(
        partition_num=meta.number("partition_num"), replica=meta.number("replica"),
        ordered=meta.flag("ordered"), extended=meta.flag("extend_support"),
        multi_part=meta.flag("multi_part"),
        channels_are_registered=meta.flag("disable_channel_auto_create"),
    )


def read_lookupds(data: Any) -> tuple[LookupdNode, ...]:
    """Read ``/listlookup``; nothing for a nsqlookupd without coordinator, which says null."""
    if data is None:
        return ()
    fields = Fields(data, "its answer")
    if not fields.has("lookupdnodes"):
        return ()
    leader = fields.object("lookupdleader").text("ID")
    found = []
    for node in fields.objects("lookupdnodes"):
        host, port = node.text("NodeIP"), read_digits(node.text("HttpPort"), _DIGITS)
        if _HOST.fullmatch(host) and port is not None and 0 < port < 65536:
            is_leader = bool(leader) and node.text("ID") == leader
            found.append(LookupdNode(format_address(host, port), is_leader))
        else:
            logger.log(
                _unusable.level(logging.WARNING),
                "a nsqlookupd lists an unusable nsqlookupd: %.200r:%.20s", host,
                node.text("HttpPort"),
            )
    return tuple(found)
