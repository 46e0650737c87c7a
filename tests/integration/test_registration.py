"""nsqd and nsqlookupd together: the embedded ones, and each with a real partner.

Both kinds of nsqd run against both kinds of nsqlookupd, so that neither embedded end merely
agrees with the other.
"""

import json
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from nsqclient.devserver import Nsqlookupd
from tests.support.servers.factories import LookupdFactory, ServerFactory
from tests.support.servers.raw_socket import connect, read_all
from tests.support.waiting import wait_until

KINDS = ["embedded", pytest.param("real", marks=pytest.mark.real)]


@pytest.fixture(params=KINDS)
def lookupd(leak_guard, request, tmp_path: Path):
    factory = LookupdFactory(request.param, tmp_path)
    try:
        yield factory()
    finally:
        factory.close()


@pytest.fixture(params=KINDS)
def start_nsqd(leak_guard, request, tmp_path: Path, lookupd) -> Callable[..., Any]:
    factory = ServerFactory(request.param, tmp_path / "nsqds")
    (tmp_path / "nsqds").mkdir()

    def start(**options: Any) -> Any:
        nsqd = factory(lookupd_tcp_addresses=[lookupd.tcp_address], **options)
        # A real one registers in the background.
        port = int(nsqd.tcp_address.rpartition(":")[2])
        wait_until(lambda: port in {node["tcp_port"] for node in nodes(lookupd)})
        return nsqd

    try:
        yield start
    finally:
        factory.close()


def nodes(lookupd: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lookupd.get("/nodes").json()["producers"]
    return found


def lookup(lookupd: Any, topic: str) -> tuple[list[str], int]:
    """The channels of a topic and the number of its producers; -1 for an unknown topic."""
    answer = requests.get(f"http://{lookupd.http_address}/lookup?topic={topic}", timeout=10)
    if answer.status_code == 404:
        return [], -1
    return sorted(answer.json()["channels"]), len(answer.json()["producers"])


def test_what_comes_and_goes_is_registered(lookupd, start_nsqd):
    nsqd = start_nsqd()
    nsqd.create("t", "c", "e#ephemeral")
    wait_until(lambda: lookup(lookupd, "t") == (["c", "e#ephemeral"], 1))
    nsqd.post("/channel/delete", topic="t", channel="e#ephemeral")
    wait_until(lambda: lookup(lookupd, "t") == (["c"], 1))
    nsqd.post("/topic/delete", topic="t")
    wait_until(lambda: lookup(lookupd, "t") == (["c"], 0))


def test_a_nsqd_that_ends_is_forgotten(lookupd, start_nsqd):
    nsqd = start_nsqd()
    nsqd.create("t", "c")
    wait_until(lambda: lookup(lookupd, "t") == (["c"], 1))
    nsqd.stop()
    wait_until(lambda: lookup(lookupd, "t") == (["c"], 0))
    nsqd.start()
    wait_until(lambda: lookup(lookupd, "t") == (["c"], 1))


def test_a_new_topic_has_the_channels_of_the_others(lookupd, start_nsqd):
    """Channels known to nsqlookupd are made before the first message, save ephemeral ones."""
    lookupd.post("/channel/create", topic="t", channel="one")
    lookupd.post("/channel/create", topic="t", channel="two")
    lookupd.post("/channel/create", topic="t", channel="no#ephemeral")
    nsqd = start_nsqd()
    nsqd.post("/pub", b"hi", topic="t")
    # A real nsqd's topic hands over in the background.
    wait_until(lambda: [(channel["channel_name"], channel["depth"])
                        for channel in nsqd.stats("t")["channels"]] == [("one", 1), ("two", 1)])


# -- nsqlookupd's TCP answers, byte by byte

_ME = {
    "broadcast_address": "127.0.0.1", "hostname": "vm", "http_port": 1, "tcp_port": 2,
    "version": "1.3.0",
}


def _sized(body: bytes) -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def _identify(**changes: Any) -> bytes:
    fields = {**_ME, **changes}
    return _sized(json.dumps({k: v for k, v in fields.items() if v != "absent"}).encode())


_V1 = b"  V1"
_IN = _V1 + _identify()
TALKS = [
    b"  V2",
    _V1 + b"PING\n",
    _V1 + b"PING x y\r\n",
    _V1 + b" PING \n",
    _V1 + b"FOO\n",
    _V1 + b"ping\n",
    _V1 + b"\n",
    _V1 + b"REGISTER t c\n",
    _V1 + b"UNREGISTER t\n",
    _V1 + b"IDENTIFY x\r\n" + _identify()[9:],
    _V1 + _sized(b"{nope"),
    _V1 + _sized(b""),
    _V1 + _sized(b"null"),
    _V1 + _sized(b"[]"),
    _V1 + _sized(b"{}"),
    _V1 + _sized(b"3"),
    _V1 + _sized(b'{"http_port":NaN}'),
    _V1 + _sized(b"[" * 9999),
    *[
        _V1 + _identify(**changes)
        for changes in (
            {"version": "absent"}, {"version": ""}, {"version": None}, {"version": 3},
            {"hostname": "absent"}, {"broadcast_address": ""}, {"http_port": 0},
            {"tcp_port": "absent"}, {"tcp_port": "1"}, {"tcp_port": 1.5}, {"tcp_port": True},
            {"tcp_port": -1}, {"more": [1]},
        )
    ],
    _IN,
    _IN + _identify(),
    _IN + b"PING\n",
    _IN + b"REGISTER\n",
    _IN + b"REGISTER  \n",
    _IN + b"REGISTER  t\n",
    _IN + b"REGISTER b$d c\n",
    _IN + b"REGISTER t b$d\n",
    _IN + b"REGISTER t \xffd\n",
    _IN + b"REGISTER t c more\n",
    _IN + b"REGISTER t  x\n",
    _IN + b"REGISTER " + b"a" * 64 + b" " + b"b" * 64 + b"\n",
    _IN + b"REGISTER " + b"a" * 65 + b"\n",
    _IN + b"REGISTER a#ephemeral b#ephemeral\n",
    _IN + b"UNREGISTER\n",
    _IN + b"UNREGISTER nope nope\n",
    _IN + b"REGISTER t c\nUNREGISTER t c\nUNREGISTER t\nPING\n",
    _V1 + b"IDENTIFY\n",
    _V1 + b"IDENTIFY\n\0\0",
    _V1 + b"IDENTIFY\n\0\0\0\x09{}",
    _V1 + b"PING",
    b"  ",
]


def _talk(address: str, data: bytes) -> bytes:
    """Say something, end our half, and return all that is answered."""
    with connect(address) as sock:
        sock.sendall(data)
        sock.shutdown(1)
        # The ports differ, and nothing else does.
        return re.sub(rb'_port":\d+', b'_port":0', read_all(sock))[4:]


@pytest.mark.real
def test_the_answers_are_those_of_the_real_nsqlookupd(real_nsqlookupd):
    real = real_nsqlookupd()
    with Nsqlookupd() as embedded, ThreadPoolExecutor(4) as pool:
        expected = list(pool.map(lambda data: _talk(real.tcp_address, data), TALKS))
        got = list(pool.map(lambda data: _talk(embedded.tcp_address, data), TALKS))
    assert [both for both in zip(TALKS, expected, got) if both[1] != both[2]] == []
    assert sum(map(bool, expected)) > len(TALKS) - 5
