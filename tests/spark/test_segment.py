"""What is in a segment, and how it becomes Spark's rows."""

import datetime
import pickle

import pyarrow as pa
import pytest

from nsqclient.spark.errors import DamagedSegmentError
from nsqclient.spark.options import ROW_DDL
from nsqclient.spark.segment import ROWS, check_segment, encode_segment, read_ids, read_rows

NOW = 1_700_000_000_123_456_789
ONE = (NOW, 1, b"0123456789abcdef", b"hello")
TWO = (NOW + 1, 65535, b"0123456789abcde0", b"\x00\xff" * 3)
THREE = (NOW + 2, 2, b"0123456789abcdef", b"nsq-writer:")
PARTS = [("a:4150", [ONE, TWO]), ("b:4150", [THREE])]
WRITER = "0123456789abcdef" * 2
#: Enough that the middle of a file is in the bodies.
MANY = bytes(encode_segment("topic", "channel", [
    ("a:4150", [(NOW + n, 1, b"%016x" % n, b"body %d" % n) for n in range(2500)])]))


def test_rows_have_every_field_of_the_message():
    """And the declared schema: Spark checks the first batch and believes the others."""
    found = read_rows(encode_segment("topic", "channel", PARTS))
    assert found.schema == ROWS
    assert found.schema.names == [column.split()[0] for column in ROW_DDL.split(", ")]
    rows = found.to_pylist()
    assert rows[1] == {
        "topic": "topic", "channel": "channel", "nsqd": "a:4150",
        "message_id": "0123456789abcde0", "attempts": 65535,
        "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123456,
                                       tzinfo=datetime.timezone.utc),
        "timestamp_ns": NOW + 1, "body": b"\x00\xff" * 3,
    }
    assert [(row["nsqd"], row["body"]) for row in rows[::2]] == [
        ("a:4150", b"hello"), ("b:4150", b"nsq-writer:")]


def test_an_id_that_is_no_text_keeps_no_other_message():
    """The segment was acknowledged to nsqd: it must be readable for ever."""
    odd = (NOW, 1, b"\xff" * 16, b"odd")
    rows = read_rows(encode_segment("topic", "channel", [("a:4150", [ONE, odd, TWO])]))
    assert rows.column("body").to_pylist() == [ONE[3], b"odd", TWO[3]]
    assert rows.column("message_id")[2].as_py() == "0123456789abcde0"


def test_any_tool_that_reads_arrow_reads_a_segment():
    """It is a file of its own, and says what it is."""
    data = bytes(encode_segment("topic", "channel", PARTS, WRITER))
    table = pa.ipc.open_file(data).read_all()
    assert table.column("body").to_pylist() == [ONE[3], TWO[3], THREE[3]]
    assert table.schema.metadata[b"topic"] == b"topic"


def test_a_segment_names_its_writer_and_its_ids():
    data = bytes(encode_segment("topic", "channel", PARTS, WRITER, "node7, process 4121"))
    assert WRITER.encode() in data
    assert read_ids(check_segment("u", "k", data)) == (3, {
        "a:4150": [b"0123456789abcdef", b"0123456789abcde0"], "b:4150": [b"0123456789abcdef"]},
        "node7, process 4121")


@pytest.mark.parametrize("size", [1, 4096])
@pytest.mark.parametrize("position", [0.0, 0.001, 0.25, 0.5, 0.75, 0.99, 0.9999])
def test_damage_is_noticed_wherever_it_is(position, size):
    """Flipped, or lost and zero as a file system gives it: never rows that were not sent."""
    start = int(len(MANY) * position)
    for change in (lambda byte: byte ^ 4, lambda byte: 0):
        part = bytes(map(change, MANY[start:start + size]))
        damaged = MANY[:start] + part + MANY[start + size:]
        if damaged == MANY:
            continue
        with pytest.raises(DamagedSegmentError, match="segment k is damaged"):
            check_segment("u", "k", damaged)


def test_each_byte_of_a_small_segment_counts():
    """Also those of the checksum and of the writer."""
    data = bytes(encode_segment("t", "c", PARTS, WRITER))
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 4
        with pytest.raises(DamagedSegmentError):
            check_segment("u", "k", bytes(broken))


@pytest.mark.parametrize("part", [0.0, 0.00001, 0.1, 0.5, 0.9, 0.9999])
def test_a_truncated_file_is_an_error(part):
    with pytest.raises(DamagedSegmentError, match="its beginning or its end is missing"):
        check_segment("u", "k", MANY[:int(len(MANY) * part)])


def test_the_error_has_all_that_is_known():
    """The segment, which its key names with its nsqd, and what to do; it can be pickled."""
    data = bytearray(encode_segment("topic", "channel", PARTS))
    data[len(data) // 2] ^= 0xff
    with pytest.raises(DamagedSegmentError) as caught:
        check_segment("file:///x", "key", bytes(data))
    text = str(caught.value)
    assert text.startswith("log file:///x: segment key is damaged (its checksum is ")
    assert text.endswith("set failOnDataLoss=false to read the rest without it")
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
