"""Publishes one message from the page's form, over the HTTP API of one nsqd."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from nsqclient.admin.actions import NotFound
from nsqclient.admin.answers import BadRequest
from nsqclient.admin.cluster import Cluster, Node, UpstreamError
from nsqclient.errors import ConfigError, LocalProtocolError
from nsqclient.http import NsqdHTTP


def read_body(body: str, encoding: str) -> bytes:
    """The bytes of a form's body: ``text`` as UTF-8, or ``base64``.

    Raises:
        BadRequest: it is not what it says.
    """
    if encoding == "base64":
        try:
            data = base64.b64decode("".join(body.split()), validate=True)
        except (binascii.Error, ValueError) as exc:
            raise BadRequest("INVALID_BODY", f"this is no base64: {exc}") from None
    elif encoding in ("", "text"):
        data = body.encode("utf-8", "surrogatepass")
    else:
        raise BadRequest("INVALID_BODY", "encoding is text or base64")
    if not data:
        raise BadRequest("INVALID_BODY", "a message needs at least one byte")
    return data


def publish(
    cluster: Cluster, topic: str, body: bytes, node: str, defer: Any
) -> str:
    """Publish to an nsqd, the given one or the first that is well; return which.

    Raises:
        NotFound: there is no such nsqd. UpstreamError: it failed. BadRequest: nsqd would refuse.
    """
    chosen = _choose(cluster, topic, node)
    if defer is not None and (isinstance(defer, bool) or not isinstance(defer, (int, float))):
        raise BadRequest("INVALID_DEFER", "defer is a number of seconds")

    def pub(nsqd: NsqdHTTP) -> str:
        """Publish; return why nsqd would refuse it, if so."""
        try:
            nsqd.pub(topic, body, defer=defer or None)
        except (LocalProtocolError, ConfigError) as exc:
            return str(exc)
        return ""

    done, failures = cluster.each([chosen], pub, is_action=True)
    if not done:
        raise UpstreamError("nsqd", failures)
    if done[chosen]:
        raise BadRequest("INVALID_BODY", done[chosen])
    return chosen.address


def _choose(cluster: Cluster, topic: str, address: str) -> Node:
    found = cluster.recent_nodes(progressive=True)
    if address:
        named = found.named(address)
        if named is None:
            raise NotFound("NODE_NOT_FOUND", f"there is no nsqd {address}")
        return named
    well, failures = cluster.each(found.nodes, lambda nsqd: nsqd.ping(), progressive=True)
    if not well:
        raise UpstreamError("nsqd", [*found.failures, *failures])
    having = [node for node in well if topic in node.topics]
    return (having or list(well))[0]
