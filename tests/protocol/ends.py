"""A client core and a server core in memory, with the wire between them."""

from nsqclient.devserver.protocol.commands import (
    Cls, Dpub, Identify, Mpub, PartitionPub, PartitionSub, Pub, Sub,
)
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.protocol.events import Identified, Upgraded
from nsqclient.protocol.layers import DeflateLayer, SnappyLayer
from nsqclient.protocol.tls import TLSLayer

_ANSWERED_OK = (Sub, Pub, Dpub, Mpub, PartitionSub, PartitionPub)


class Ends:
    """Both cores; ``sizes`` are the lengths of pieces in turn, and 0 stands for all there is.

    ``contexts`` are the TLS contexts of client and server.
    """

    def __init__(self, sizes=(0,), server=None, contexts=None):
        self.client = ClientProtocol()
        self.server = server or ServerProtocol()
        self.heard = []  # events of the server
        self.events = []  # events of the client
        self.refuse = {}  # type of a command -> (code, text)
        self._sizes, self._turn = sizes, 0
        self._contexts = contexts

    def run(self):
        """Transfer bytes both ways until both ends are silent; return their events."""
        self.heard, self.events = [], []
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return self.heard, self.events
            self.to_server(up)
            self.to_client(down)

    def to_server(self, data):
        """Send this to the server, which answers."""
        for piece in self._pieces(data):
            self.server.receive_data(piece)
            while not self.server.is_closed and (events := self.server.take_events()):
                for event in events:
                    self._answer(event)
                    if self.server.is_closed:
                        break

    def to_client(self, data):
        """Send this to the client, which adds its layers."""
        for piece in self._pieces(data):
            self.client.receive_data(piece)
            while events := self.client.take_events():
                self.events += events
                for event in events:
                    if (isinstance(event, (Identified, Upgraded))
                            and self.client.state is State.UPGRADING):
                        self.client.push_layer(self._layer(isinstance(event, Identified)))

    def _pieces(self, data):
        at = 0
        while at < len(data):
            size = self._sizes[self._turn % len(self._sizes)] or len(data)
            self._turn += 1
            yield data[at:at + size]
            at += size

    def _answer(self, event):
        self.heard.append(event)
        if type(event) in self.refuse:
            self.server.fail(*self.refuse[type(event)])
        elif isinstance(event, Identify):
            self._grant(event.response, event.settings)
        elif isinstance(event, _ANSWERED_OK):
            self.server.respond(b"OK")
        elif isinstance(event, Cls):
            self.server.respond(b"CLOSE_WAIT")

    def _grant(self, response, settings):
        """Answer and upgrade in one segment, as nsqd may do."""
        self.server.respond(response)
        if settings.tls:
            self.server.start_layer(TLSLayer(self._contexts[1], server_side=True))
            self.server.respond(b"OK")
        if settings.snappy or settings.deflate:
            snappy = settings.snappy
            self.server.start_layer(SnappyLayer() if snappy
                                    else DeflateLayer(settings.deflate_level))
            self.server.respond(b"OK")

    def _layer(self, is_first):
        settings = self.client.settings
        if settings.tls_v1 and is_first:
            return TLSLayer(self._contexts[0], server_name="127.0.0.1")
        return SnappyLayer() if settings.snappy else DeflateLayer(settings.deflate_level)
