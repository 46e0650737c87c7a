"""The content of a segment, and how segments become tasks and Spark's rows. No JVM."""

import datetime
import gc
import itertools
import pickle
import weakref

import pyarrow as pa
import pytest

from nsqclient.spark.errors import DamagedSegmentError, StorageError
from nsqclient.spark.options import ROW_DDL
from nsqclient.spark.reading.partitions import make_partitions, read_partition, spread
from nsqclient.spark.segment import (
    ROWS, Rows, check_segment, encode_segment, read_ids, read_rows,
)
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.storage import open_store
from tests.spark.logs import write_log

NOW = 1_700_000_000_123_456_789
ONE = (NOW, 1, b"0123456789abcdef", b"hello")
TWO = (NOW + 1, 65535, b"0123456789abcde0", b"\x00\xff" * 3)
THREE = (NOW + 2, 2, b"0123456789abcdef", b"nsq-writer:")
PARTS = [("a:4150", Rows.of([ONE, TWO])), ("b:4150", Rows.of([THREE]))]
WRITER = "0123456789abcdef" * 2


def test_rows_have_every_field_of_the_message():
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
    """A segment must stay readable, because it was acknowledged to nsqd."""
    odd = (NOW, 1, b"\xff" * 16, b"odd")
    rows = read_rows(encode_segment("topic", "channel", [("a:4150", Rows.of([ONE, odd, TWO]))]))
    assert rows.column("body").to_pylist() == [ONE[3], b"odd", TWO[3]]
    assert rows.column("message_id")[2].as_py() == "0123456789abcde0"


def test_any_tool_that_reads_arrow_reads_a_segment():
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


def test_each_byte_of_a_small_segment_counts():
    """A flipped bit, or zeros as a file system may return, are found anywhere in the file."""
    data = bytes(encode_segment("t", "c", PARTS, WRITER))
    for position in range(len(data)):
        for end, change in itertools.product((position + 1, position + 512), (
                lambda byte: byte ^ 4, lambda byte: 0)):
            damaged = data[:position] + bytes(map(change, data[position:end])) + data[end:]
            if damaged != data:
                with pytest.raises(DamagedSegmentError, match="segment k is damaged"):
                    check_segment("u", "k", damaged)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_an_error(part):
    data = bytes(encode_segment("topic", "channel", PARTS, WRITER))
    with pytest.raises(DamagedSegmentError, match="its beginning or its end is missing"):
        check_segment("u", "k", data[:int(len(data) * part)])


def test_the_error_has_all_that_is_known():
    data = bytearray(encode_segment("topic", "channel", PARTS))
    data[len(data) // 2] ^= 0xff
    with pytest.raises(DamagedSegmentError) as caught:
        check_segment("file:///x", "key", bytes(data))
    text = str(caught.value)
    assert text.startswith("log file:///x: segment key is damaged (its checksum is ")
    assert text.endswith("set failOnDataLoss=false to read the rest without it")
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def tasks_of(folder, *sizes, parts=2):
    store = open_store(str(folder))
    write_log(store, "a:4150", *sizes)
    listed = store.list_objects(ShardKeys("t", "c", "a:4150").of("segments"))
    return make_partitions(store.url, [(one.key, one.size) for one in listed], parts)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_segments_are_spread_evenly_and_in_order(count):
    """Over the wanted number of tasks, if there are enough segments."""
    runs = spread([(number, 10) for number in range(12)], count)
    assert [number for run in runs for number in run] == list(range(12))
    assert len(runs) == min(count, 12)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_a_large_segment_does_not_starve_the_other_tasks():
    assert spread([("a", 100), ("b", 1), ("c", 1), ("d", 98)], 2) == [["a"], ["b", "c", "d"]]
    assert spread([], 3) == []


def test_small_segments_are_joined_and_large_ones_are_not(tmp_path):
    sizes = [1, 2, 1500, 1, 999, 1, 1, 2000]
    [task] = tasks_of(tmp_path, *sizes, parts=1)
    batches = list(read_partition(pickle.loads(pickle.dumps(task))))
    assert [batch.num_rows for batch in batches] == [3, 1500, 1000, 2, 2000]
    assert [int(body) for batch in batches for body in batch.column("body").to_pylist()
            ] == list(range(sum(sizes)))


def test_garbage_is_freed_however_many_storages_a_process_opens(tmp_path):
    """Frozen objects stay, and Spark's processes run many tasks."""
    first, second = (tasks_of(tmp_path / name, 1, parts=1)[0] for name in "ab")
    list(read_partition(first))

    class Cycle:
        pass

    gc.disable()
    try:
        cycle = Cycle()
        cycle.itself = cycle
        found = weakref.ref(cycle)
        del cycle
        list(read_partition(second))
    finally:
        gc.enable()
    gc.collect()
    assert found() is None


def test_an_executor_without_the_storage_fails_with_the_remedy(tmp_path):
    [task] = tasks_of(tmp_path / "driver", 3, parts=1)
    task.url = f"file://{tmp_path}/executor"
    with pytest.raises(StorageError, match="does not have what the driver has .* s3://"):
        list(read_partition(task))
