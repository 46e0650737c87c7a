"""The captured table of nsqd's answers, and errors that need a situation, on both servers."""

import contextlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import snappy

from tests.integration.error_table import LATER_KEYS, LAYERS, TABLE, Row
from tests.support.servers.factories import ServerFactory
from tests.support.servers.http_api import ServerUnderTest
from tests.support.servers.raw_client import ERROR, RESPONSE, Closed, RawClient
from tests.support.servers.raw_socket import connect, read_all, read_exactly

#: A real server closes with a RST when it leaves bytes unread, and the RST may overtake the error
#: frame at the client; so the frame is asked for again.
ATTEMPTS = 30
#: How long a server that waits for more must stay silent, in seconds.
SILENCE = 0.3
#: How long to wait for an answer or an end that must come, in seconds.
PATIENCE = 5.0

ROWS = [
    pytest.param(row, id=f"{name} {number}: {row.sent[:50]!r}")
    for name, rows in TABLE.items()
    for number, row in enumerate(rows, 1)
]


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)]
)
def table_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerUnderTest]:
    """One server for all rows; each row starts with no topic on it."""
    factory = ServerFactory(request.param, tmp_path_factory.mktemp("table"))
    try:
        yield factory()
    finally:
        factory.close()


def _delete_topics(server: ServerUnderTest) -> None:
    for topic in server.stats()["topics"] or ():
        # An ephemeral topic may go by itself, when nsqd notices that its consumer has left.
        with contextlib.suppress(requests.HTTPError):
            server.post("/topic/delete", topic=topic["topic_name"])


def _replay(address: str, row: Row) -> tuple[list[tuple[int, bytes]], bool]:
    """Play a row; return the frames that came and whether the connection ended."""
    with RawClient(address, magic=row.magic, timeout=PATIENCE) as client:
        if row.after_sub:
            client.subscribe("t1", "c1")
        client.send(row.sent)
        frames = []
        try:
            for _ in row.frames:
                frames.append(client.read_frame())
            if row.closed:
                client.read_end()
        except Closed:
            return frames, True
        except TimeoutError:
            return frames, False
        return frames, row.closed or not _still_works(client, row)


def _still_works(client: RawClient, row: Row) -> bool:
    if row.mid_body:
        return client.is_silent(SILENCE)
    # What was sent of the magic may be half of it: the other half must still be accepted.
    rest_of_magic = b"  V2"[len(row.magic + row.sent):]
    try:
        return client.ask(rest_of_magic + b"NOP\nPUB probe\n\0\0\0\1x") == (RESPONSE, b"OK")
    except Closed:
        return False


def _comparable(frame: tuple[int, bytes], row: Row) -> tuple[int, Any]:
    """Return a frame as it is; an IDENTIFY answer as its keys and values, in order."""
    if row.identified is None:
        return frame
    answer = json.loads(frame[1], object_pairs_hook=list)
    return frame[0], [pair for pair in answer if pair[0] not in LATER_KEYS]


def _expected(row: Row) -> list[tuple[int, Any]]:
    if row.identified is None:
        return list(row.frames)
    return [(RESPONSE, list(row.identified.items()))]


@pytest.mark.parametrize("row", ROWS)
def test_the_server_answers_a_command_with_the_captured_frames(table_server, row):
    _delete_topics(table_server)
    attempts = ATTEMPTS if table_server.kind == "real" and row.closed else 1
    for _ in range(attempts):
        frames, closed = _replay(table_server.tcp_address, row)
        if len(frames) == len(row.frames) or (frames and frames[-1][0] == ERROR):
            break
    assert [_comparable(frame, row) for frame in frames] == _expected(row)
    assert closed == row.closed


OK = b"\0\0\0\6\0\0\0\0OK"
LAYER_ROWS = [pytest.param(row, id=repr(row.sent[13:60])) for row in LAYERS]
#: One command that ends a connection, and a command that does not, of the other table.
UNKNOWN, PUB = TABLE["unknown"][0], TABLE["PUB"][0]


class Deflate:
    def __init__(self):
        self._out = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.decompress = zlib.decompressobj(-15).decompress

    def compress(self, data):
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)


class Snappy:
    def __init__(self):
        self.compress = snappy.StreamCompressor().add_chunk
        self.decompress = snappy.StreamDecompressor().decompress


def converse(server, row, command):
    """Negotiate, send a command through the layer; return the answer's pairs and the rest."""
    layer = Snappy() if row.identified["snappy"] else Deflate()
    with connect(server.tcp_address) as sock:
        sock.sendall(b"  V2" + row.sent)
        size = int.from_bytes(read_exactly(sock, 4), "big")
        answer = json.loads(read_exactly(sock, size)[4:], object_pairs_hook=list)
        came = b""
        while len(came) < len(OK):
            came += layer.decompress(sock.recv(1))
        sock.sendall(layer.compress(command))
        sock.shutdown(1)  # for writing: nsqd answers the commands it has read, then closes
        came += layer.decompress(read_all(sock))
    return [pair for pair in answer if pair[0] not in LATER_KEYS], came


@pytest.mark.parametrize("row", LAYER_ROWS)
@pytest.mark.parametrize("command", [PUB, UNKNOWN], ids=["PUB", "unknown"])
def test_a_compressed_connection_gets_the_captured_frames(server, row, command):
    """The answer comes in plain, then OK and all that follows, errors too, in the compression."""
    answer, came = converse(server, row, command.sent)
    [(kind, text)] = command.frames
    assert answer == list(row.identified.items())
    assert came == OK + (4 + len(text)).to_bytes(4, "big") + kind.to_bytes(4, "big") + text


# -- other clients' messages, limits, deleted topics

STORED = (RESPONSE, b"OK")
# A message back from its timeout may be 5 s late on a real nsqd, whose scan of a new channel
# starts that late.
REDELIVERY = 20.0


def _publish(server, topic="t1"):
    server.create(topic, "c1")
    server.post("/pub", b"hello", topic=topic)


def test_a_consumer_above_the_limit_of_a_channel_is_refused(server_factory):
    server = server_factory(max_channel_consumers=2)
    address = server.tcp_address
    with RawClient(address) as one, RawClient(address) as two, RawClient(address) as three:
        one.subscribe("m2", "c")
        two.subscribe("m2", "c")
        text = b"E_SUB_FAILED SUB failed consumers for m2:c exceeds limit of 2"
        assert three.ask(b"SUB m2 c\n") == (ERROR, text)
        three.read_end()
        assert one.ask(b"PUB t1\n\0\0\0\1x") == STORED


@pytest.mark.parametrize("command", [b"FIN %b\n", b"REQ %b 0\n", b"TOUCH %b\n"])
def test_a_message_of_another_client_cannot_be_finished(server, command):
    _publish(server)
    with RawClient(server.tcp_address) as owner, RawClient(server.tcp_address) as other:
        owner.subscribe("t1", "c1", ready=1)
        message_id, _, _ = owner.read_message()
        other.subscribe("t1", "c1")
        name = command.split()[0]
        text = b"E_%b_FAILED %b %b failed client does not own message" % (name, name, message_id)
        assert other.ask(command % message_id) == (ERROR, text)
        assert other.ask(b"PUB t2\n\0\0\0\1x") == STORED


def test_a_fin_after_the_timeout_is_refused(server_factory):
    server = server_factory(msg_timeout=1.0)
    _publish(server)
    address = server.tcp_address
    with RawClient(address) as late, RawClient(address, timeout=REDELIVERY) as next_one:
        late.subscribe("t1", "c1", ready=1)
        message_id, _, _ = late.read_message()
        late.send(b"RDY 0\n")
        next_one.subscribe("t1", "c1", ready=1)
        assert next_one.read_message() == (message_id, 2, b"hello")
        next_one.send(b"FIN %b\nRDY 0\n" % message_id)
        assert next_one.ask(b"PUB t2\n\0\0\0\1x") == STORED
        text = b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id
        assert late.ask(b"FIN %b\n" % message_id) == (ERROR, text)


def test_a_late_fin_finishes_a_message_that_the_same_client_got_again(server_factory):
    server = server_factory(msg_timeout=1.0)
    _publish(server)
    with RawClient(server.tcp_address, timeout=REDELIVERY) as client:
        client.subscribe("t1", "c1", ready=1)
        first = client.read_message()
        second = client.read_message()
        assert (second[0], second[1]) == (first[0], 2)
        assert client.ask(b"FIN %b\nPUB t2\n\0\0\0\1x" % first[0]) == STORED
        assert server.stats("t1", "c1")["in_flight_count"] == 0


@pytest.mark.parametrize("end", [
    lambda server: server.post("/topic/delete", topic="t1"),
    lambda server: server.post("/channel/delete", topic="t1", channel="c1"),
    lambda server: server.stop(),
], ids=["topic deleted", "channel deleted", "stopped"])
def test_a_consumer_whose_channel_is_gone_sees_the_end_of_file(server, end):
    with RawClient(server.tcp_address) as client:
        client.subscribe("t1", "c1")
        end(server)
        assert not client.read_end().reset
