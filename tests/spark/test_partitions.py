"""How a batch becomes tasks: no server, no Spark."""

import gc
import pickle
import weakref

import pytest

from nsqclient.spark.errors import StorageError
from nsqclient.spark.partitions import make_partitions, read_partition, spread
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.storage.store import open_store
from tests.spark.logs import write_log

A = "a:4150"


def tasks_of(folder, *sizes, parts=2):
    """The tasks of segments of so many rows."""
    store = open_store(str(folder))
    write_log(store, A, *sizes)
    listed = store.list_objects(ShardKeys("t", "c", A).of("segments"))
    return make_partitions(store.url, [(one.key, one.size) for one in listed], parts)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_segments_are_spread_evenly_and_in_order(count):
    """As many tasks as are wanted, where there are so many segments."""
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
    """Spark's processes live for many tasks; what is frozen with the modules stays for ever."""
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
