"""The client core against the server core, in memory: both ends must mean the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsqclient.config import Config
from nsqclient.devserver.protocol.commands import (
    Dpub, Fin, Ignored, Mpub, OpenTopic, Pub, Rdy, Req, ServerLimits, Sub, Touch,
)
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol import commands
from nsqclient.protocol.events import (
    Identified, Messages, Published, Subscribed, Upgraded,
)
from nsqclient.runtime.tls import client_context, server_context
from tests.protocol.ends import Ends
from tests.support.certificates import Certificates
from tests.support.fuzz import fuzz

ID = b"0123456789abcdef"
LIMITS = ServerLimits(tls=True, snappy=True, deflate=True, max_deflate_level=9)
COMBINATIONS = {
    "plain": {},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 1},
    "tls+snappy": {"tls_v1": True, "snappy": True},
    "tls+deflate": {"tls_v1": True, "deflate": True, "deflate_level": 9},
}


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """The client's and the server's SSLContext."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    return client_context(ca_file=made.ca), server_context(cert=made.server, key=made.server_key)


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
@fuzz
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12))
@example(sizes=[1])
@example(sizes=[0])
def test_a_handshake_may_be_split_anywhere(contexts, options, sizes):
    ends = Ends(sizes, ServerProtocol(LIMITS), contexts)
    ends.client.send_identify(Config(**options).identify_payload())
    _, events = ends.run()
    layers = ("tls_v1" in options) + ("snappy" in options or "deflate" in options)
    assert [type(event) for event in events] == [Identified] + [Upgraded] * layers
    ends.client.send_publish(commands.pub("t", b"x" * 300), "token")
    ends.client.send_sub("t", "c")  # in the segment of the publish
    assert ends.run() == ([Pub("t", b"x" * 300), Sub("t", "c")], [Published("token"), Subscribed()])
    ends.server.send_message(1, 1, ID, b"body")
    ends.server.send_message(2, 2, ID, b"")
    _, events = ends.run()
    assert all(type(event) is Messages for event in events)
    assert [raw for event in events for raw in event.batch] == [
        (1, 1, ID, b"body"), (2, 2, ID, b""),
    ]


class Pair(Ends):
    """Both ends, with a client that can identify and subscribe."""

    def subscribed(self):
        self.client.send_identify({"feature_negotiation": True})
        self.run()
        self.client.send_sub("t", "c")
        self.run()
        return self


@pytest.fixture(params=[0, 1, 7], ids=["whole", "byte by byte", "by seven"])
def pair(request):
    """Both ends, with the bytes cut in three ways."""
    return Pair((request.param,))


def publish(command):
    return lambda pair, token: pair.client.send_publish(command, token)


#: Client call -> event at the server. Calls that begin with "pub" have an outcome.
SENDS = {
    "pub": (publish(commands.pub("t", b"\n" * 300)), [Pub("t", b"\n" * 300)]),
    "pub later": (publish(commands.dpub("t", 1500, b"x")), [Dpub("t", 1500, b"x")]),
    "pub several": (publish(commands.mpub("t", [b"a", b"bc"])),
                    [OpenTopic("t"), Mpub("t", [b"a", b"bc"])]),
    "rdy": (lambda pair, token: pair.client.send_rdy(2500), [Rdy(2500)]),
    "fin": (lambda pair, token: pair.client.send_fin([ID]), [Fin(ID)]),
    "req": (lambda pair, token: pair.client.send_req(ID, 90_000), [Req(ID, 90_000)]),
    "req late": (lambda pair, token: pair.client.send_req(ID, 10**30), [Req(ID, 3_600_000)]),
    "touch": (lambda pair, token: pair.client.send_touch(ID), [Touch(ID)]),
    "beat": (lambda pair, token: pair.server.send_heartbeat(), []),
    "message": (lambda pair, token: pair.server.send_message(-token, 65535, ID, b""), []),
}


@fuzz
@given(st.lists(st.sampled_from(sorted(SENDS)), max_size=20), st.integers(0, 40))
@example(sorted(SENDS), 0)
@example(sorted(SENDS), 1)
def test_both_ends_understand_each_other_in_any_order_of_sending(names, step):
    pair = Pair((step,)).subscribed()
    for token, name in enumerate(names):
        SENDS[name][0](pair, token)
    heard, events = pair.run()
    understood = [event for event in heard if not isinstance(event, Ignored)]
    expected = [event for name in names for event in SENDS[name][1]]
    # As text: tuples of two kinds are equal where their values are.
    assert list(map(repr, understood)) == list(map(repr, expected))
    tokens = [event.token for event in events if isinstance(event, Published)]
    assert tokens == [n for n, name in enumerate(names) if name.startswith("pub")]
    messages = [raw for event in events if isinstance(event, Messages) for raw in event.batch]
    assert messages == [(-n, 65535, ID, b"") for n, name in enumerate(names) if name == "message"]
