"""The handshake of every combination, its bytes split anyhow, between both cores."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsqclient.config import Config
from nsqclient.devserver.protocol.commands import Pub, ServerLimits, Sub
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.protocol import commands
from nsqclient.protocol.events import Identified, Messages, Published, Subscribed, Upgraded
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
    """A client's and a server's context."""
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    return client_context(ca_file=made.ca), server_context(cert=made.server, key=made.server_key)


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
@fuzz
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12))
@example(sizes=[1])
@example(sizes=[0])
def test_a_handshake_may_be_split_anywhere(contexts, options, sizes):
    """However bytes are split, the dialogue is the same, from IDENTIFY to messages."""
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
