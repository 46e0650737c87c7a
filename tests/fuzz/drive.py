"""Drives a core as its owner would, with whatever bytes; returns how the dialogue ended."""

import ssl
from collections.abc import Iterable

from nsqclient.devserver.protocol.commands import (
    Auth, Cls, Dpub, Identify, Mpub, Pub, ServerLimits, Sub,
)
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.errors import RemoteProtocolError, TLSError
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.protocol.events import Identified, Upgraded
from nsqclient.protocol.layers import ByteLayer, DeflateLayer, SnappyLayer
from nsqclient.protocol.tls import TLSLayer

#: No frame may be longer, so no core may hold more than this and its last input.
MAX_FRAME_SIZE = 64 * 1024
LIMITS = ServerLimits(
    snappy=True, deflate=True, max_msg_size=32 * 1024, max_body_size=MAX_FRAME_SIZE,
)


def client(chunks: Iterable[bytes], context: ssl.SSLContext) -> str:
    """Feed a client core; return ``closed``, ``open``, or the name of the error."""
    core = ClientProtocol(MAX_FRAME_SIZE)
    core.send_identify({"feature_negotiation": True})
    try:
        for chunk in chunks:
            core.receive_data(chunk)
            _listen(core, context)
    except (RemoteProtocolError, TLSError) as exc:
        core.take_events()
        return type(exc).__name__
    is_closed = core.state is State.CLOSED
    core.receive_eof()
    core.unanswered()
    return "closed" if is_closed else "open"


def _listen(core: ClientProtocol, context: ssl.SSLContext) -> None:
    """Do what a connection does: layers, a subscription or a publish, and what there is to say."""
    for event in core.take_events():
        if isinstance(event, (Identified, Upgraded)) and core.state is State.UPGRADING:
            core.push_layer(_client_layer(core, event, context))
    if core.state is State.READY:
        core.send_publish(commands.pub("t", b"x"), 1)
        core.send_sub("t", "c")
    core.data_to_send()


def _client_layer(
    core: ClientProtocol, event: Identified | Upgraded, context: ssl.SSLContext
) -> ByteLayer:
    settings = core.settings
    if settings.tls_v1 and isinstance(event, Identified):
        return TLSLayer(context, server_name="127.0.0.1")
    return SnappyLayer() if settings.snappy else DeflateLayer()


def server(chunks: Iterable[bytes]) -> str:
    """Feed a server core; return ``closed`` or ``open``. It raises nothing, whatever comes."""
    core = ServerProtocol(LIMITS)
    for chunk in chunks:
        core.receive_data(chunk)
        _serve(core)
        core.data_to_send()
        if core.is_closed:
            return "closed"
    core.receive_eof()
    _serve(core)
    core.data_to_send()
    return "open"


def _serve(core: ServerProtocol) -> None:
    while events := core.take_events():
        for event in events:
            if isinstance(event, Identify):
                core.respond(event.response)
                if event.settings.snappy or event.settings.deflate:
                    snappy = event.settings.snappy
                    core.start_layer(SnappyLayer() if snappy else DeflateLayer())
                    core.respond(b"OK")
            elif isinstance(event, Auth):
                core.respond(b"{}")
            elif isinstance(event, (Sub, Pub, Dpub, Mpub)):
                core.respond(b"OK")
            elif isinstance(event, Cls):
                core.respond(b"CLOSE_WAIT")
            if core.is_closed:
                return
