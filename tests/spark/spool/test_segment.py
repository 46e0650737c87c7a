"""What is in a segment, and how it becomes Spark's rows."""

from __future__ import annotations

import datetime

import pytest

pa = pytest.importorskip("pyarrow")

from nsqclient.spark.schema import ROW_DDL, row_schema  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import (  # noqa: E402 - needs pyarrow
    encode_segment,
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


def test_rows_say_all_that_nsqd_said():
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


def test_a_damaged_segment_is_an_error(tmp_path):
    """Never rows that were not sent."""
    whole = encode_segment("topic", "channel", PARTS).to_pybytes()
    with pytest.raises(pa.ArrowInvalid):
        read_rows(whole[:-20])
