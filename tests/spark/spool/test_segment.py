"""What is in a segment, and how it becomes Spark's rows."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from nsqclient.spark.errors import DamagedSegmentError  # noqa: E402 - needs pyarrow
from nsqclient.spark.schema import ROW_DDL, row_schema  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.names import SegmentName, checksum_of  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import (  # noqa: E402 - needs pyarrow
    ROW_BYTES,
    SEGMENT_BYTES,
    TASK_BYTES,
    encode_part,
    encode_segment,
    find_cuts,
    load_segment,
    read_ids,
    read_messages,
    read_rows,
)

NOW = 1_700_000_000_123_456_789
ONE = (NOW, 1, b"0123456789abcdef", b"hello")
TWO = (NOW + 1, 65535, b"0123456789abcde0", b"\x00\xff" * 3)
THREE = (NOW + 2, 2, b"0123456789abcdef", b"")
PARTS = [("a:4150", [ONE, TWO]), ("b:4150", [THREE])]


def test_rows_have_the_declared_schema():
    """Spark checks the first batch and believes the others."""
    rows = read_rows(encode_segment("topic", "channel", PARTS).to_pybytes())
    assert rows.schema == row_schema()
    assert rows.schema.names == [column.split()[0] for column in ROW_DDL.split(", ")]


def test_rows_have_every_field_of_the_message():
    """Topic, channel, nsqd, id, attempts, time and body."""
    rows = read_rows(encode_segment("topic", "channel", PARTS)).to_pylist()
    assert rows[1] == {
        "topic": "topic", "channel": "channel", "nsqd": "a:4150",
        "message_id": "0123456789abcde0", "attempts": 65535,
        "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123456,
                                       tzinfo=datetime.timezone.utc),
        "timestamp_ns": NOW + 1, "body": b"\x00\xff" * 3,
    }
    assert [(row["nsqd"], row["body"]) for row in rows[::2]] == [
        ("a:4150", b"hello"), ("b:4150", b"")]


def test_a_segment_is_read_from_its_path(tmp_path):
    """As executors do where the spool is shared."""
    path = str(tmp_path / "segment with space.arrow")
    with open(path, "wb") as file:
        file.write(encode_segment("topic", "channel", PARTS))
    assert read_rows(path).num_rows == 3
    assert read_ids(path) == {
        "a:4150": [b"0123456789abcdef", b"0123456789abcde0"], "b:4150": [b"0123456789abcdef"]}


def test_messages_can_be_appended_again(tmp_path):
    """A stray becomes what the writer was given."""
    path = str(tmp_path / "segment")
    with open(path, "wb") as file:
        file.write(encode_segment("topic", "channel", [*PARTS, ("a:4150", [THREE])]))
    assert read_messages(path) == [("a:4150", [ONE, TWO, THREE]), ("b:4150", [THREE])]


def test_a_segment_of_full_size_fits_into_a_task():
    """Schema, addresses and the ends of columns included, for rows of every size."""
    for size in (1, 200, 1_000_000):
        rows = SEGMENT_BYTES // (ROW_BYTES + size)
        parts = [(f"host-{number}.example:4150", [(NOW, 1, b"0123456789abcdef", b"x" * size)])
                 for number in range(min(50, rows))]
        parts[0][1].extend([(NOW, 1, b"0123456789abcdef", b"x" * size)] * (rows - len(parts)))
        assert encode_segment("t" * 64, "c" * 64, parts).size <= TASK_BYTES


def test_a_segment_that_is_too_large_is_cut_by_its_bytes(tmp_path):
    """No row is lost, and a larger message is alone."""
    path = str(tmp_path / "segment")
    bodies = [b"a" * 10, b"b" * 10, b"c" * 500, b"d" * 10, b"e" * 90, b"f" * 10]
    messages = [(NOW, 1, b"%016d" % row, body) for row, body in enumerate(bodies)]
    with open(path, "wb") as file:
        file.write(encode_segment("t", "c", [("a:1", messages[:3]), ("b:1", messages[3:])]))
    cuts = find_cuts(path, 2 * ROW_BYTES + 100)
    assert [(cut.first, cut.rows, cut.size - cut.rows * ROW_BYTES) for cut in cuts] == [
        (0, 2, 20), (2, 1, 500), (3, 2, 100), (5, 1, 10)]
    parts = [encode_part(path, cut.first, cut.rows) for cut in cuts]
    assert [row for part in parts for row in read_rows(part).to_pylist()] == (
        read_rows(path).to_pylist())
    assert len(parts[0]) < len(parts[1])


#: Enough that the middle of a file is in the bodies.
MANY = [("a:4150", [(NOW + n, 1, b"%016x" % n, b"body %d" % n) for n in range(2500)])]


def segment_file(folder, parts=MANY, checked=True):
    """A segment as the spool names it."""
    data = encode_segment("topic", "channel", parts)
    rows = sum(len(messages) for _, messages in parts)
    name = SegmentName(42, 3, rows, checksum_of(data) if checked else None)
    path = Path(folder, str(name))
    path.write_bytes(data)
    return path


def overwrite(path, position, data):
    """Damage a file; a position is a part of its size."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(int(position * size))
        old = file.read(len(data))
        file.seek(int(position * size))
        file.write(data if data != old else bytes(255 - byte for byte in old))


def test_an_undamaged_segment_is_read(tmp_path):
    """The bytes have the checksum that the name has."""
    path = str(segment_file(tmp_path))
    assert load_segment(path).to_pybytes() == Path(path).read_bytes()
    assert read_rows(path).num_rows == 2500


@pytest.mark.parametrize("position", [0.0, 0.001, 0.25, 0.5, 0.75, 0.99, 0.9999])
@pytest.mark.parametrize("read", [read_rows, read_ids, read_messages, load_segment])
def test_flipped_bytes_are_an_error_wherever_they_are(tmp_path, read, position):
    """In the header, in the middle, in the footer: never rows that were not sent."""
    path = segment_file(tmp_path)
    overwrite(path, position, b"\xff\x00\xff"[:max(1, int((1 - position) * 1000))])
    with pytest.raises(DamagedSegmentError, match="2500 messages of offset 42 of nsqd a:4150"):
        read(str(path))


@pytest.mark.parametrize("position, size", [(0.0, 4096), (0.5, 4096), (0.5, 1), (0.9, 8192)])
def test_a_zeroed_range_is_an_error(tmp_path, position, size):
    """A file system gives zeros for blocks that were lost: these were empty bodies."""
    path = segment_file(tmp_path)
    overwrite(path, position, bytes(size))
    with pytest.raises(DamagedSegmentError, match="segment 000000000042-000003-2500-"):
        read_rows(str(path))


@pytest.mark.parametrize("part", [0.0, 0.00001, 0.1, 0.5, 0.9, 0.9999])
def test_a_truncated_file_is_an_error(tmp_path, part):
    """The empty file too, and one byte less."""
    path = segment_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:int(len(data) * part)])
    with pytest.raises(DamagedSegmentError, match="2500 messages of offset 42"):
        read_rows(str(path))


def test_the_error_has_all_that_is_known(tmp_path):
    """The segment, its offset, the nsqds, the times, and what to do; it can be pickled."""
    path = segment_file(tmp_path, PARTS)
    overwrite(path, 0.5, b"\xff\x00\xff")
    with pytest.raises(DamagedSegmentError) as caught:
        read_rows(str(path))
    text = str(caught.value)
    assert text.startswith(f"spool {tmp_path}: segment {path.name} is damaged (its checksum is ")
    assert ("held 3 messages of offset 42 of nsqd a:4150, b:4150, published from"
            " 2023-11-14T22:13:20.123456+00:00 to 2023-11-14T22:13:20.123456+00:00") in text
    assert text.endswith("set failOnDataLoss=false to read the rest without it")
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_an_unreadable_description_is_not_believed(tmp_path):
    """It has a checksum of its own."""
    path = segment_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"a:4150", b"a:4151"))
    with pytest.raises(DamagedSegmentError, match="of which nsqd and time is not readable"):
        read_rows(str(path))


def test_a_segment_without_a_checksum_is_read(tmp_path):
    """An earlier version wrote it."""
    path = str(segment_file(tmp_path, checked=False))
    assert read_rows(path).num_rows == 2500 and len(read_messages(path)[0][1]) == 2500


@pytest.mark.parametrize("part", [0.0, 0.5, 0.9999])
def test_a_segment_without_a_checksum_is_checked_by_its_format(tmp_path, part):
    """The error is the same, with the name."""
    path = segment_file(tmp_path, checked=False)
    data = path.read_bytes()
    path.write_bytes(data[:int(len(data) * part)])
    with pytest.raises(DamagedSegmentError, match="segment 000000000042-000003-2500.arrow is dam"):
        load_segment(str(path))


@pytest.mark.parametrize("make, words", [
    (lambda path: path.rename(path.with_name("000000000042-000003-9.arrow")), "has 2500 rows"),
    (lambda path: pa.ipc.new_file(str(path), pa.schema([("x", pa.int32())])).close(), "damaged"),
])
def test_a_file_of_other_rows_is_no_segment(tmp_path, make, words):
    """Where no checksum shows it, the number of rows or the columns do."""
    path = segment_file(tmp_path, checked=False)
    make(path)
    with pytest.raises(DamagedSegmentError, match=words):
        load_segment(str(next(tmp_path.iterdir())))


def test_a_batch_of_other_columns_is_no_segment(tmp_path):
    """It is an Arrow file all the same."""
    path = tmp_path / str(SegmentName(1, 1, 1))
    batch = pa.record_batch({"x": [1]}, metadata={"topic": "t", "channel": "c"})
    with pa.ipc.new_file(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DamagedSegmentError, match="its columns are others"):
        load_segment(str(path))
