"""Every other parser of what peers send: a function of bytes that returns or raises a named error.

``python -m tests.fuzz parsers`` mutates seeds with a fixed seed.
"""

import gzip
import io
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from unittest import mock

from nsqclient import NSQError, RemoteProtocolError
from nsqclient.admin.aggregate import Source, merge_topic, objects, text
from nsqclient.admin.metrics import to_text
from nsqclient.admin.overview import RateHistory, build_rows, samples
from nsqclient.devserver.auth import read_state
from nsqclient.devserver.http_server import HTTPError
from nsqclient.devserver.nsqd_http import read_binary, read_lines
from nsqclient.devserver.protocol.commands import CommandError
from nsqclient.devserver.protocol.lookupd import (
    read_command, read_identity, read_peer, sized, topic_and_channel,
)
from nsqclient.errors import DiscoveryError
from nsqclient.errors import NSQHTTPError as ClientHTTPError
from nsqclient.http import NsqdHTTP, NsqlookupdHTTP
from nsqclient.cluster.cluster import Node as AdminNode
from nsqclient.http.models import LookupdInfo, Node, NsqdInfo, Producer, Stats
from nsqclient.partitioned.http import read_lookupds, read_meta, read_partitions
from nsqclient.protocol.events import read_settings
from nsqclient.protocol.peer_json import InvalidField, InvalidJson, JsonReader, read_json
from tests.fuzz.streams import mutate, mutate_json
from tests.support.memory import MIB, resident

#: How much more memory a run may take than there was before it, in bytes.
MOST_MEMORY = 100 * MIB
#: Seconds that one input may take on a machine that is busy; parsers take microseconds.
MOST_SECONDS = 5.0


class Target(NamedTuple):
    parse: Callable[[bytes], object]
    documented: tuple[type[BaseException], ...]  #: exceptions that it may raise
    seeds: tuple[bytes, ...]
    is_json: bool = False  #: every other input has values replaced, and stays JSON


def _lookupd_server(data: bytes) -> None:
    stream = io.BytesIO(data)
    while (words := read_command(stream)) is not None:
        if words[0] == "IDENTIFY":
            read_identity(stream)
        elif words[0] != "PING":
            topic_and_channel(words[0], words[1:])


def _mpub(data: bytes) -> None:
    for read in (read_lines, read_binary):
        try:
            read(data, 1000)
        except HTTPError:
            pass


def _answers(data: bytes) -> None:
    value = read_json(data)
    infos = [partial(JsonReader.build, kind=kind) for kind in (NsqdInfo, LookupdInfo)]
    for read in (Stats.read, Producer.read, Node.read, *infos):
        try:
            read(JsonReader(value, "it"))
        except InvalidField:
            pass


def _partitioned_answers(data: bytes) -> None:
    value = read_json(data)
    fields = JsonReader(value, "it")
    for read in (read_partitions, read_meta, lambda _: read_lookupds(value)):
        try:
            read(fields)
        except InvalidField:
            pass


def _http_answer(data: bytes) -> None:
    """The whole way of an answer: its head, redirects, encoding, JSON."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: NsqdHTTP("nsqd:1").stats(), lambda: NsqdHTTP("nsqd:1").get_option("x"),
        lambda: NsqdHTTP("nsqd:1").pub("t", b"x"), lambda: NsqlookupdHTTP("lookupd:1").lookup("t"),
    )
    with answering(data):
        try:
            calls[len(data) % len(calls)]()
        except (ClientHTTPError, DiscoveryError):
            pass


def _admin_stats(data: bytes) -> None:
    """The numbers of the admin page, from what one nsqd says of itself."""
    answer = read_json(data)
    if not isinstance(answer, dict):
        return
    stats = {_NODE: answer}
    history = RateHistory()
    for at in (1.0, 2.0):
        history.add_round(samples(stats), {_NODE.address: at})
    rows = build_rows(samples(stats), (), history)
    topics = [
        merge_topic(text(topic, "topic_name"), [Source("n:1", "h", topic)] * 2, 1.7e9)
        for topic in objects(answer, "topics")
    ]
    shown = json.dumps([rows, topics], ensure_ascii=False, allow_nan=False)
    for written in (shown, to_text(stats, {_NODE.address: True}, {})):
        assert len(written.encode()) < 10 * len(data) + 10_000


class _Answering(io.RawIOBase):
    """A stand-in for a socket that http.client and urllib3 accept; it takes every request."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._rest = io.BytesIO(data)

    def makefile(self, *args: object, **options: object) -> io.BytesIO:
        return self._rest

    def sendall(self, data: bytes) -> None:
        pass

    def gettimeout(self) -> float:
        return 5.0

    def settimeout(self, seconds: float) -> None:
        pass


@contextmanager
def answering(data: bytes) -> Iterator[None]:
    """Every connection of our HTTP clients gets this answer, and nothing is dialed."""
    with mock.patch("urllib3.util.connection.create_connection", lambda *_, **__: _Answering(data)):
        yield


_NODE = AdminNode("n:1", "n:1", "n:2", "n", "host", 2, 1, "1.3.0")
_SETTINGS = b'{"max_rdy_count":2500,"version":"1.3.0","msg_timeout":60000,"deflate_level":6}'
_STATS = json.dumps({
    "version": "1.3.0", "health": "OK", "start_time": 1, "topics": [{
        "topic_name": "t", "depth": 1, "backend_depth": 0, "message_count": 3, "paused": False,
        "channels": [{
            "channel_name": "c", "depth": 1, "in_flight_count": 0, "clients": [
                {"client_id": "x", "remote_address": "127.0.0.1:1", "state": 3}
            ], "e2e_processing_latency": {"count": 7, "percentiles": [
                {"quantile": 0.99, "value": 246189467}, {"quantile": 0.5, "value": 1.5e6},
            ]},
        }],
    }], "producers": [],
}).encode()
_PRODUCER = (
    b'{"remote_address":"127.0.0.1:1","hostname":"h","broadcast_address":"b","tcp_port":4150,'
    b'"http_port":4151,"version":"1.3.0","tombstones":[false],"topics":["t"]}'
)
TARGETS = {
    "settings": Target(read_settings, (RemoteProtocolError,), (_SETTINGS,), True),
    "lookupd server": Target(_lookupd_server, (CommandError,), (
        b"IDENTIFY\n" + sized(b'{"broadcast_address":"b","hostname":"h","tcp_port":4150,'
                              b'"http_port":4151,"version":"1.3.0"}')
        + b"REGISTER t c\nPING\nUNREGISTER t c\n",
        b"PING\nREGISTER t\n",
    )),
    "lookupd client": Target(lambda data: read_peer(io.BytesIO(data)), (NSQError,), (
        sized(_PRODUCER), b"\0\0\0\x02{}",
    )),
    "mpub": Target(_mpub, (), (b"a\nb\n\nc", b"\0\0\0\2\0\0\0\1a\0\0\0\2bc")),
    "answers": Target(_answers, (InvalidJson, InvalidField), (_STATS, _PRODUCER), True),
    "HTTP answer": Target(_http_answer, (), (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            len(_STATS), _STATS),
        b'HTTP/1.1 200 OK\r\nX-NSQ-Content-Type: nsq; version=1.0\r\n\r\n'
        b'{"start_time": 1, "producers": [%s]}' % _PRODUCER,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:4151/x?y#z\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b'{"version":"1"}'),
        b'HTTP/1.1 403 Forbidden\r\nContent-Length: 44\r\n\r\n'
        b'{"message": "TLS_REQUIRED", "https_port": 1}',
    ), True),
    "admin stats": Target(_admin_stats, (InvalidJson, InvalidField), (_STATS,), True),
    "partitioned answers": Target(_partitioned_answers, (InvalidJson, InvalidField), (
        b'{"partitions":{"0":' + _PRODUCER + b'},"meta":{"partition_num":2,"replica":1}}',
        b'{"lookupdleader":{"ID":"x"},"lookupdnodes":[{"ID":"x","NodeIP":"127.0.0.1",'
        b'"HttpPort":"4161"}]}',
    ), True),
    "authorizations": Target(read_state, (ValueError,), (
        b'{"ttl":60,"identity":"i","identity_url":"","authorizations":[{"permissions":'
        b'["subscribe","publish"],"topic":"^t.*$","channels":["^c$"]}]}',
    ), True),
}


def play(name: str, data: bytes) -> bool:
    """Feed one input; return whether it was taken.

    Raises:
        AssertionError: the outcome is not documented, or took too long.
    """
    target = TARGETS[name]
    began = time.monotonic()
    try:
        target.parse(data)
        taken = True
    except target.documented:
        taken = False
    except Exception as exc:
        raise AssertionError(f"{name}: {exc!r} for {data!r}") from exc
    took = time.monotonic() - began
    assert took < MOST_SECONDS, f"{name}: {took:.1f} s for {data!r}"
    return taken


def fuzz(name: str, count: int, seed: int) -> int:
    """Play ``count`` mutated seeds; return how many were taken. Raises as ``play``."""
    rng = random.Random(f"{seed} {name}")
    seeds, is_json = TARGETS[name].seeds, TARGETS[name].is_json
    before = resident()[0]
    taken = 0
    for _ in range(count):
        change = mutate_json if is_json and rng.random() < 0.5 else mutate
        data = change(rng.choice(seeds), rng)
        taken += play(name, data)
    grown = resident()[0] - before
    assert grown < MOST_MEMORY, f"{name}: {grown / MIB:.0f} MiB more than before"
    return taken
