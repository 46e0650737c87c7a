"""The embedded nsqlookupd over its two ports."""

import pytest
import requests

from nsqclient.devserver.nsqlookupd import Nsqlookupd
from nsqclient.devserver.protocol.lookupd import Identity, identify, read_ok, read_peer
from tests.support.servers.raw_socket import connect

NSQD = Identity("10.0.0.1", "there", 4151, 4150, "1.3.0")


@pytest.fixture
def lookupd(leak_guard):
    with Nsqlookupd() as lookupd:
        yield lookupd


def test_a_registered_producer_is_found(lookupd):
    """After the OK of REGISTER; the answer to IDENTIFY has the address for HTTP requests."""
    def get(path):
        return requests.get(f"http://{lookupd.http_address}{path}", timeout=10).json()

    with connect(lookupd.tcp_address) as sock, sock.makefile("rb") as stream:
        sock.sendall(identify(NSQD) + b"REGISTER t c\n")
        peer = read_peer(stream)
        assert f"{peer.broadcast_address}:{peer.http_port}" == lookupd.http_address
        assert f"{peer.broadcast_address}:{peer.tcp_port}" == lookupd.tcp_address
        read_ok(stream)
        facts = {"remote_address": "{}:{}".format(*sock.getsockname()), **NSQD._asdict()}
        assert get("/lookup?topic=t") == {"channels": ["c"], "producers": [facts]}
        assert get("/nodes") == {"producers": [facts | {"tombstones": [False], "topics": ["t"]}]}
        assert get("/topics") == {"topics": ["t"]}
        assert get("/channels?topic=t") == {"channels": ["c"]}


def test_http_port_in_use_frees_the_tcp_port(lookupd):
    port = int(lookupd.http_address.rpartition(":")[2])
    other = Nsqlookupd(http_port=port)
    with pytest.raises(OSError, match="cannot listen on"):
        other.start()
    other.stop()
