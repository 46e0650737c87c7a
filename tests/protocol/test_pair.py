"""The client core against the server core, in memory: both ends must mean the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.config import Config
from nsqclient.devserver.protocol.commands import (
    Auth,
    Cls,
    Dpub,
    Fin,
    Identify,
    Ignored,
    Mpub,
    OpenTopic,
    Pub,
    Rdy,
    Req,
    ServerLimits,
    Sub,
    Touch,
)
from nsqclient.devserver.protocol.server import ServerProtocol, ServerState
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol, State
from nsqclient.protocol.events import (
    Authenticated,
    CloseWait,
    Published,
    FatalError,
)
from tests.support.fuzz import fuzz

ID = b"0123456789abcdef"
_ANSWERED_OK = (Sub, Pub, Dpub, Mpub)


class Pair:
    """A client core and a server core, and the wire between them.

    ``step`` is how many bytes are sent at once; 0 means all there are.
    """

    def __init__(self, step, limits=None):
        self.step = step
        self.client = ClientProtocol()
        self.server = ServerProtocol(limits)
        self.heard = []  # what the server understood
        self.events = []  # what the client understood

    def _pieces(self, data):
        step = self.step or max(1, len(data))
        return [data[n:n + step] for n in range(0, len(data), step)]

    def run(self):
        """Carry bytes both ways until both ends are silent; return what each understood."""
        self.heard, self.events = [], []
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return self.heard, self.events
            for piece in self._pieces(up):
                self.server.receive_data(piece)
                self._serve()
            for piece in self._pieces(down):
                self.client.receive_data(piece)
                self._listen()

    def _serve(self):
        while events := self.server.take_events():
            for event in events:
                self.heard.append(event)
                if isinstance(event, Identify):
                    self.server.respond(event.response)
                elif isinstance(event, _ANSWERED_OK):
                    self.server.respond(b"OK")
                elif isinstance(event, Cls):
                    self.server.respond(b"CLOSE_WAIT")
                elif isinstance(event, Auth):
                    self.server.respond(b'{"identity":"me"}')

    def _listen(self):
        while events := self.client.take_events():
            self.events += events

    def subscribed(self):
        """Identify and subscribe."""
        self.client.send_identify({"feature_negotiation": True})
        self.run()
        self.client.send_sub("t", "c")
        self.run()
        return self


@pytest.fixture(params=[0, 1, 7], ids=["whole", "byte by byte", "by seven"])
def pair(request):
    """A fresh pair, with the bytes cut in three ways."""
    return Pair(request.param)


def test_both_ends_agree_on_identify(pair):
    """What a Config asks for is what the server grants, and what the client reads back."""
    config = Config(client_id="me", msg_timeout=2.5, output_buffer_size=64, heartbeat_interval=10)
    pair.client.send_identify(config.identify_payload())
    [identify], [identified] = pair.run()
    asked, settings = identify.settings, identified.settings
    assert (asked.client_id, asked.msg_timeout, asked.heartbeat_interval) == ("me", 2500, 10_000)
    assert (asked.output_buffer_size, asked.output_buffer_timeout) == (64, 250)
    assert (settings.version, settings.msg_timeout_ms) == ("1.3.0", 2500)
    assert (settings.max_rdy_count, settings.max_msg_timeout_ms) == (2500, 900_000)
    assert pair.client.state is State.READY


def test_a_server_without_negotiation_answers_ok(pair):
    """A client that does not ask to negotiate gets OK, and both go on."""
    pair.client.send_identify({"client_id": "me"})
    assert len(pair.run()[1]) == 1
    assert pair.client.settings.raw == {}
    assert pair.client.state is State.READY


def test_both_ends_authenticate(pair):
    """The secret arrives, and the identity comes back."""
    pair.client.send_identify({})
    pair.run()
    pair.client.send_auth("s3cret")
    heard, events = pair.run()
    assert (heard, events) == ([Auth(b"s3cret")], [Authenticated({"identity": "me"})])


def test_messages_arrive_in_order(pair):
    """Messages arrive with every field, also with the largest attempts and an empty body."""
    pair.subscribed()
    sent = [(1, 1, ID, b"one"), (2**62, 65535, ID[::-1], b""), (-1, 0, ID, b"\n" * 300)]
    for message in sent:
        pair.server.send_message(*message)
    _, events = pair.run()
    assert [raw for event in events for raw in event.batch] == sent


@pytest.mark.parametrize("send, understood", [
    (lambda core: core.send_rdy(2500), Rdy(2500)),
    (lambda core: core.send_rdy(0), Rdy(0)),
    (lambda core: core.send_fin([ID]), Fin(ID)),
    (lambda core: core.send_req(ID, 90_000), Req(ID, 90_000)),
    (lambda core: core.send_req(ID, 10**30), Req(ID, 3_600_000)),
    (lambda core: core.send_touch(ID), Touch(ID)),
    (lambda core: core.send_nop(), Ignored(b"NOP")),
])
def test_a_command_without_response_arrives(pair, send, understood):
    """The server understands what the client meant, and says nothing."""
    send(pair.subscribed().client)
    assert pair.run() == ([understood], [])


@pytest.mark.parametrize("command, understood", [
    (commands.pub("t", b"x" * 300), [Pub("t", b"x" * 300)]),
    (commands.pub("t", b"\n"), [Pub("t", b"\n")]),
    (commands.dpub("t", 1500, b"x"), [Dpub("t", 1500, b"x")]),
    (commands.mpub("t", [b"a", b"bc"]), [OpenTopic("t"), Mpub("t", [b"a", b"bc"])]),
])
def test_a_publish_arrives_and_is_answered(pair, command, understood):
    """A publish arrives whole, and its outcome comes back with its token."""
    pair.client.send_identify({})
    pair.run()
    pair.client.send_publish(command, "token")
    assert pair.run() == (understood, [Published("token")])


def test_both_ends_have_the_same_limits(pair):
    """What our checks let through at nsqd's limits, the server takes."""
    pair.step = pair.step and 4096  # two megabytes byte by byte would be slow
    pair.server = ServerProtocol(ServerLimits(max_msg_size=10_000, max_body_size=20_016))
    pair.client.send_identify({})
    pair.run()
    bodies = [b"x" * 10_000, b"y" * 10_000]
    pair.client.send_publish(commands.mpub("t", bodies, 10_000, 20_012), 1)
    pair.client.send_publish(commands.pub("t", bodies[0], 10_000), 2)
    pair.client.send_publish(commands.dpub("t", 3_600_000, b"x"), 3)
    assert pair.run()[1] == [Published(1), Published(2), Published(3)]


def test_both_ends_close_a_subscription(pair):
    """CLS is answered; answers to messages are still taken, RDY has no effect any more."""
    pair.subscribed()
    pair.client.send_cls()
    assert pair.run() == ([Cls()], [CloseWait()])
    pair.client.send_fin([ID])
    pair.client.send_rdy(5)
    assert pair.run() == ([Fin(ID), Ignored(b"RDY 5")], [])
    assert (pair.client.state, pair.server.state) == (State.DRAINING, ServerState.CLOSING)


def test_a_fatal_error_ends_both_ends(pair):
    """A refusal ends both sides, and what was pipelined behind it has no outcome."""
    pair.client.send_identify({})
    pair.run()
    for token, command in enumerate([
        commands.pub("t", b"x"), commands.pub("t", b"x" * 11), commands.pub("t", b"y"),
    ]):
        pair.client.send_publish(command, token)
    pair.server._limits = ServerLimits(max_msg_size=10)
    _, [stored, refused] = pair.run()
    assert stored == Published(0)
    assert isinstance(refused, FatalError)
    assert (refused.token, refused.error.code) == (1, "E_BAD_MESSAGE")
    assert (pair.client.state, pair.server.is_closed) == (State.CLOSED, True)
    assert pair.client.unanswered() == [2]


_SENDS = st.lists(st.sampled_from(["pub", "dpub", "mpub", "rdy", "fin", "req", "touch", "beat",
                                   "message"]), max_size=20)


@fuzz
@given(_SENDS, st.integers(0, 40))
def test_commands_arrive_in_any_order_of_sending(names, step):
    """Whatever is sent in whatever order and pieces, the server takes it and all is answered."""
    pair = Pair(step).subscribed()
    for token, name in enumerate(names):
        if name == "beat":
            pair.server.send_heartbeat()
        elif name == "message":
            pair.server.send_message(token, 1, ID, b"body")
        elif name in ("pub", "dpub", "mpub"):
            pair.client.send_publish({
                "pub": commands.pub("t", b"x"), "dpub": commands.dpub("t", 5, b"x"),
                "mpub": commands.mpub("t", [b"x", b"y"]),
            }[name], token)
        else:
            {"rdy": lambda: pair.client.send_rdy(1), "fin": lambda: pair.client.send_fin([ID]),
             "req": lambda: pair.client.send_req(ID, 0),
             "touch": lambda: pair.client.send_touch(ID)}[name]()
    _, events = pair.run()
    tokens = [event.token for event in events if isinstance(event, Published)]
    assert tokens == [n for n, name in enumerate(names) if name in ("pub", "dpub", "mpub")]
    assert not pair.server.is_closed
