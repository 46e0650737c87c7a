"""The handshake of every combination, its bytes split anyhow, between both cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.config import Config
from nsqclient.devserver.protocol.commands import Identify, Pub, ServerLimits, Sub
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Identified, Messages, Published, Subscribed, Upgraded
from nsqclient.protocol.layers.deflate import DeflateLayer
from nsqclient.protocol.layers.snappy import SnappyLayer
from nsqclient.protocol.layers.tls import TLSLayer
from nsqclient.runtime.tls import client_context, server_context
from tests.support.certificates import Certificates
from tests.support.fuzz import fuzz

ID = b"0123456789abcdef"
COMBINATIONS = {
    "plain": {},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 1},
    "tls+snappy": {"tls_v1": True, "snappy": True},
    "tls+deflate": {"tls_v1": True, "deflate": True, "deflate_level": 9},
}


class Ends:
    """A client core and a server core; ``sizes`` says the lengths of the pieces."""

    def __init__(self, contexts, sizes):
        self._contexts = contexts
        self._sizes = sizes
        self._turn = 0
        self.client = ClientProtocol()
        self.server = ServerProtocol(ServerLimits(tls=True, snappy=True, deflate=True,
                                                  max_deflate_level=9))
        self.heard, self.seen = [], []

    def _split(self, data):
        at = 0
        while at < len(data):
            size = self._sizes[self._turn % len(self._sizes)] or len(data)
            self._turn += 1
            yield data[at:at + size]
            at += size

    def run(self):
        """Carry bytes until both ends are silent."""
        up = down = b"?"
        while up or down:
            up = self.client.data_to_send()
            for piece in self._split(up):
                self.server.receive_data(piece)
                self._serve()
            down = self.server.data_to_send()
            for piece in self._split(down):
                self.client.receive_data(piece)
                self._listen()

    def _serve(self):
        while events := self.server.take_events():
            for event in events:
                self.heard.append(event)
                if isinstance(event, Identify):
                    self._grant(event.response, event.settings)
                else:
                    self.server.respond(b"OK")

    def _grant(self, response, settings):
        """Answer and upgrade at once, as nsqd does: one segment may hold all of it."""
        self.server.respond(response)
        if settings.tls:
            self.server.start_layer(TLSLayer(self._contexts[1], server_side=True))
            self.server.respond(b"OK")
        if settings.snappy or settings.deflate:
            snappy = settings.snappy
            self.server.start_layer(SnappyLayer() if snappy
                                    else DeflateLayer(settings.deflate_level))
            self.server.respond(b"OK")

    def _listen(self):
        while events := self.client.take_events():
            for event in events:
                self.seen.append(event)
                if isinstance(event, (Identified, Upgraded)) and event.layers_due:
                    self.client.push_layer(self._layer(isinstance(event, Identified)))

    def _layer(self, is_first):
        settings = self.client.settings
        if settings.tls_v1 and is_first:
            return TLSLayer(self._contexts[0], server_name="127.0.0.1")
        return SnappyLayer() if settings.snappy else DeflateLayer(settings.deflate_level)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """A client's and a server's context."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    return client_context(ca_file=made.ca), server_context(cert=made.server, key=made.server_key)


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
@fuzz
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_a_handshake_may_be_split_anywhere(contexts, options, sizes):
    """However bytes are split, the dialogue is the same, from IDENTIFY to messages."""
    ends = Ends(contexts, sizes)
    ends.client.send_identify(Config(**options).identify_payload())
    ends.run()
    layers = ("tls_v1" in options) + ("snappy" in options or "deflate" in options)
    assert [type(event) for event in ends.seen] == [Identified] + [Upgraded] * layers
    ends.client.send_publish(commands.pub("t", b"x" * 300), "token")
    ends.client.send_sub("t", "c")  # in the segment of the publish
    ends.run()
    ends.server.send_message(1, 1, ID, b"body")
    ends.server.send_message(2, 2, ID, b"")
    ends.run()
    assert ends.seen[1 + layers:3 + layers] == [Published("token"), Subscribed()]
    batches = ends.seen[3 + layers:]
    assert all(type(event) is Messages for event in batches)
    assert [raw for event in batches for raw in event.batch] == [
        (1, 1, ID, b"body"), (2, 2, ID, b""),
    ]
    assert ends.heard[1:] == [Pub("t", b"x" * 300), Sub("t", "c")]


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_handshake_succeeds_byte_by_byte(contexts, options):
    """The finest split of all."""
    ends = Ends(contexts, [1])
    ends.client.send_identify(Config(**options).identify_payload())
    ends.run()
    ends.client.send_publish(commands.pub("t", b"\n"), "token")
    ends.run()
    assert ends.seen[-1] == Published("token")
