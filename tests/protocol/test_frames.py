"""Frames: however the bytes are cut, the same frames come out, or one documented error."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.errors import FrameTooLargeError, NotNSQError, RemoteProtocolError
from nsqclient.protocol.frames import (
    Frame, FrameReader, FrameType, encode_frame, encode_message, parse_messages_in_python,
)
from tests.support.fuzz import fuzz
from tests.support.native import FORMS

ID = b"0123456789abcdef"
OK = encode_frame(FrameType.RESPONSE, b"OK")
LATE = encode_frame(FrameType.ERROR, b"E_FIN_FAILED FIN x failed")


def _message(number, body=b"body", attempts=1):
    return number, attempts, b"%016x" % number, body


def _encode(raw):
    timestamp, attempts, message_id, body = raw
    return encode_message(timestamp, attempts, message_id, body)


#: A stream with every kind of frame, and its events.
STREAM = b"".join([
    OK, _encode(_message(1)), _encode(_message(2, b"")), LATE, _encode(_message(3, b"x" * 300)),
    encode_frame(FrameType.RESPONSE, b""), encode_frame(FrameType.RESPONSE, b"_heartbeat_"),
])
SAID = [
    Frame(0, b"OK"), _message(1), _message(2, b""), Frame(1, LATE[8:]), _message(3, b"x" * 300),
    Frame(0, b""), Frame(0, b"_heartbeat_"),
]


def _flat(parsed):
    """Return frames and single messages in order."""
    found = []
    for item in parsed:
        found += [item] if isinstance(item, Frame) else item
    return found


def _feed(reader, chunks, **options):
    return _flat([item for chunk in chunks for item in reader.feed(chunk, **options)])


def test_layout_of_frames():
    """The size includes the type. A message has timestamp, attempts, id and body."""
    assert OK == b"\0\0\0\6\0\0\0\0OK"
    encoded = encode_message(1, 2, ID, b"hi")
    assert encoded == struct.pack(">iiqH", 32, 2, 1, 2) + ID + b"hi"


def test_whole_frames_are_read_in_order():
    """Successive messages are one item."""
    parsed = FrameReader().feed(STREAM)
    assert [len(item) if isinstance(item, list) else item for item in parsed] == [
        SAID[0], 2, SAID[3], 1, SAID[5], SAID[6],
    ]
    assert _flat(parsed) == SAID


@pytest.mark.parametrize("single", [False, True])
def test_a_stream_may_be_cut_anywhere(single):
    for cut in range(len(STREAM) + 1):
        reader = FrameReader()
        found = _feed(reader, [STREAM[:cut], STREAM[cut:]], single=single)
        while more := _feed(reader, [b""], single=single):
            found += more
        assert found == SAID, cut


@pytest.mark.parametrize("native", FORMS)
def test_messages_are_parsed_up_to_the_first_other_frame(native):
    parse = native.parse_messages if native else parse_messages_in_python
    head = (2**63 - 1, 65535, b"0123456789abcdef")
    one = encode_message(*head, b"body")
    assert parse(b"", 0, 100) == ([], 0)
    assert parse(one, 0, 34) == ([(*head, b"body")], len(one))
    assert parse(one, 0, 33) == ([], 0)  # over the limit
    assert parse(one[:-1], 0, 100) == ([], 0)
    assert parse(one, len(one), 100) == ([], len(one))
    assert parse(one, len(one) + 5, 100) == ([], len(one) + 5)
    empty = encode_message(-1, 0, b"\0" * 16, b"")
    assert parse(b"??" + one + empty + encode_frame(0, b"OK") * 9, 2, 100) == (
        [(*head, b"body"), (-1, 0, b"\0" * 16, b"")], 2 + len(one) + len(empty))
    for size in (29, 0, 3, -1, -(2**31)):  # too short for a message, or negative
        broken = size.to_bytes(4, "big", signed=True) + one[4:]
        assert parse(broken, 0, 100) == ([], 0)


def test_single_returns_one_response_or_messages_that_follow_each_other():
    reader = FrameReader()
    steps = [reader.feed(STREAM, single=True)]
    while steps[-1]:
        steps.append(reader.feed(b"", single=True))
    assert all(len(step) <= 1 for step in steps)
    assert [item for step in steps for item in _flat(step)] == SAID


def test_unread_bytes_can_be_taken_back():
    reader = FrameReader()
    reader.feed(OK + OK + LATE[:7], single=True)
    assert reader.take_buffered() == OK + LATE[:7]
    assert reader.buffered == 0
    assert reader.take_buffered() == b""
    assert reader.feed(OK) == [Frame(0, b"OK")]


@pytest.mark.parametrize("size", [2**31 - 1, 2_000_000_000, 101])
def test_a_frame_over_the_limit_is_an_error(size):
    """Once its size has arrived, before memory is allocated."""
    reader = FrameReader(max_frame_size=100)
    header = struct.pack(">i", size)
    assert reader.feed(header[:3]) == []
    with pytest.raises(FrameTooLargeError, match=f"{size} bytes is over the limit of 100"):
        reader.feed(header[3:])


@pytest.mark.parametrize("encoded", [
    encode_frame(FrameType.RESPONSE, b"x" * 96), encode_message(1, 1, ID, b"x" * 70),
])
def test_a_frame_of_the_limit_is_read(encoded):
    assert len(FrameReader(100).feed(encoded)) == 1
    with pytest.raises(FrameTooLargeError):
        FrameReader(99).feed(encoded)


@pytest.mark.parametrize("length", [0, 1, 25])
def test_a_message_that_is_too_short_is_an_error(length):
    """Even if more bytes follow."""
    frame = encode_frame(FrameType.MESSAGE, b"x" * length)
    for behind in (b"", OK * 10):
        with pytest.raises(RemoteProtocolError, match=f"of {length + 4} bytes is too short"):
            FrameReader().feed(frame + behind)


@pytest.mark.parametrize("data, why", [
    *((struct.pack(">i", size), f"frame size {size} is impossible") for size in (-1, 3)),
    *((encode_frame(kind, data), f"unknown frame type {kind}")
      for kind in (-1, 3, 2**31 - 1) for data in (b"", b"x" * 40)),
])
def test_an_impossible_frame_is_an_error(data, why):
    """A size below 4, which the type needs."""
    with pytest.raises(RemoteProtocolError, match=why):
        FrameReader().feed(data)


@pytest.mark.parametrize("before", [b"", OK])
def test_an_http_answer_is_recognised(before):
    with pytest.raises(NotNSQError, match="4150"):
        _feed(FrameReader(), [before + b"HTTP/1.1 400 Bad Request\r\n", b""])
    reader = FrameReader()
    with pytest.raises(NotNSQError):
        for byte in b"HTTP":
            reader.feed(bytes([byte]))


def test_nsqlookupd_is_not_nsqd():
    """nsqlookupd's answers have no frame type, so the error can name its TCP port."""
    for answer in (b"E_BAD_PROTOCOL", b"E_INVALID x"):
        with pytest.raises(NotNSQError, match="nsqlookupd's.*4160.*4150"):
            FrameReader().feed(len(answer).to_bytes(4, "big") + answer)


def test_big_body_is_linear(monkeypatch):
    body = b"x" * 2**20
    encoded = encode_message(1, 1, ID, body)
    pieces = [encoded[n:n + 65536] for n in range(0, len(encoded), 65536)]
    reader = FrameReader()
    joined = []
    keep = reader._keep
    monkeypatch.setattr(reader, "_keep", lambda buf, *at: (joined.append(len(buf)), keep(buf, *at)))
    assert _feed(reader, pieces) == [(1, 1, ID, body)]
    assert joined == [65536, len(encoded)]  # at the first piece, and when it was whole


def test_big_body_is_in_memory_twice_at_most():
    """The pieces are freed before the body is copied."""
    size = 4 * 2**20
    encoded = encode_message(1, 1, ID, b"x" * size)
    reader = FrameReader()
    tracemalloc.start()
    try:
        parsed = []
        for start in range(0, len(encoded), 65536):
            parsed += reader.feed(encoded[start:start + 65536])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(parsed[0][0][3]) == size
    assert 2 * size <= most < 2.5 * size


_FRAMES = st.lists(st.one_of(
    st.binary(max_size=40).map(lambda data: encode_frame(FrameType.RESPONSE, data)),
    st.binary(max_size=40).map(lambda data: encode_frame(FrameType.ERROR, data)),
    st.binary(max_size=60).map(lambda data: encode_message(7, 65535, ID, data)),
), max_size=8).map(b"".join)


@fuzz
@given(_FRAMES, st.binary(max_size=60), st.lists(st.integers(0, 400), max_size=5))
def test_cutting_changes_nothing(stream, garbage, cuts):
    data = stream + garbage
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    outcomes = []
    for chunks in ([data], [data[a:b] for a, b in zip(edges, edges[1:])]):
        reader, found, end = FrameReader(1000), [], None
        try:
            for chunk in chunks:
                found += _feed(reader, [chunk])
                while more := _feed(reader, [b""]):
                    found += more
            end = reader.buffered
        except RemoteProtocolError as exc:
            end = str(exc)[:20]
        outcomes.append((found, end))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("fault", [
    b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\0\0\0", b"HTTP", encode_frame(9, b"x"),
    encode_frame(FrameType.MESSAGE, b"short"),
])
@pytest.mark.parametrize("before", [OK, LATE, _encode(_message(1)), STREAM])
def test_frames_before_a_fault_count(before, fault):
    reader = FrameReader()
    assert _flat(reader.feed(before + fault)) == _feed(FrameReader(), [before])
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            reader.feed(b"")
