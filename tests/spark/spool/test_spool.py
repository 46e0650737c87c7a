"""The spool on disk: numbers, locks, crashes, strays, full disks."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from nsqclient.spark.errors import (  # noqa: E402 - needs pyarrow
    DamagedSegmentError,
    DataLossError,
    SpoolError,
    SpoolFullError,
    SpoolLockedError,
    SpoolMismatchError,
)
from nsqclient.spark.spool import folder as folder_module  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool import spool as spool_module  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.known_ids import Claim  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.names import SegmentName, checksum_of  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.offsets import (  # noqa: E402 - needs pyarrow
    COMMITTED, EARLIEST, LATEST, after_seq, at_time,
)
from nsqclient.spark.spool.retention import Retention  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import encode_segment, read_rows  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment_index import Entry  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.spool import Spool  # noqa: E402 - needs pyarrow


def messages(first, count):
    """Messages whose ids and bodies are numbers."""
    numbers = range(first, first + count)
    return [(number, 1, b"%016x" % number, b"%d" % number) for number in numbers]


def claim(first, count, conn="a", window=10):
    """Their claim."""
    return Claim("n:1", conn, window, [message[2] for message in messages(first, count)])


@pytest.fixture
def path(tmp_path):
    """A folder that is not there yet, with a name that nothing may take apart."""
    return str(tmp_path / "the spöol 漢 #1 %20")


@pytest.fixture
def opened(path):
    """Factory of open spools on the same folder; they are closed with the test."""
    spools = []

    def start(topic="t", clock=time.monotonic, kept=None, **arguments):
        retention = None if kept is None else Retention(*kept)
        spool = Spool(path, topic, "c", clock=clock, retention=retention)
        spools.append(spool)
        spool.open(patience=0, **arguments)
        return spool

    yield start
    for spool in spools:
        spool.close()


def append(spool, first, count, conn="a"):
    """Store some messages; return the result."""
    tmp = spool.write_tmp(encode_segment("t", "c", [("n:1", messages(first, count))]))
    return spool.append(tmp, count, [claim(first, count, conn)])


def crash(spool):
    """Let the folder go as a killed process does."""
    spool.folder.close()


def bodies(spool, start=0):
    """Every body after segment ``start``, as Spark would read it."""
    entries = spool.batch(start, spool.last)
    return [body for entry in entries
            for body in read_rows(spool.path_of(entry.number)).column("body").to_pylist()]


def test_numbers_are_dense_and_rise(opened):
    """An offset is the number of the last segment."""
    spool = opened()
    assert [append(spool, first, 5).number for first in (0, 5, 10)] == [1, 2, 3]
    assert spool.last == 3 and spool.waiting[0] == 15
    assert bodies(spool) == [b"%d" % number for number in range(15)]


def test_a_second_query_is_refused(opened):
    """Two writers would mix their numbers."""
    opened()
    with pytest.raises(SpoolLockedError, match=f"process {os.getpid()}: each query needs"):
        opened()


def test_a_spool_belongs_to_one_topic(opened):
    """Rows of another topic must not appear."""
    opened().close()
    with pytest.raises(SpoolMismatchError, match="belongs to topic 't', channel 'c'"):
        opened(topic="other")


def test_a_spool_of_another_format_is_refused(opened, path):
    """Better no start than rows that are read wrongly."""
    opened().close()
    with open(os.path.join(path, "meta.json"), "w") as file:
        json.dump({"version": 99}, file)
    with pytest.raises(SpoolMismatchError, match="format 99"):
        opened()


def test_a_damaged_note_is_an_error(opened, path):
    """It is named, so that it can be inspected."""
    opened().close()
    with open(os.path.join(path, "meta.json"), "w") as file:
        file.write("{")
    with pytest.raises(SpoolMismatchError, match="meta.json is damaged"):
        opened()


def test_numbers_go_on_after_a_restart(opened):
    """And what was there is there."""
    first = opened()
    append(first, 0, 5)
    first.close()
    second = opened(at_least=1)
    assert append(second, 5, 5).number == 2
    assert bodies(second) == [b"%d" % number for number in range(10)]


def test_copies_of_durable_messages_are_refused(opened):
    """Positions come back, and nothing has happened."""
    spool = opened()
    append(spool, 0, 5)
    result = append(spool, 3, 4, conn="b")
    assert result.number == 0 and result.copies == [[0, 1]]
    assert spool.last == 1
    assert not [name for name in os.listdir(spool.folder.path) if name.startswith(".tmp")]


def test_copies_alone_make_no_segment(opened):
    """They are counted, and may be finished."""
    spool = opened()
    append(spool, 0, 5)
    assert spool.append(None, 0, [], [claim(0, 5, "b")]) == (0, None)
    assert spool.last == 1 and spool.copies_dropped == 5


def test_after_a_crash_copies_are_recognised(opened):
    """FIN may not have been sent for anything that is in a segment."""
    first = opened()
    append(first, 0, 5)
    crash(first)
    assert append(opened(), 0, 5, conn="b").copies == [[0, 1, 2, 3, 4]]


def test_after_a_clean_end_nothing_is_in_doubt(opened, path):
    """CLOSE_WAIT proved every FIN, so no ids are read or kept."""
    first = opened()
    append(first, 0, 5)
    first.conn_closed("a", clean=True)
    first.close()
    note = json.loads(Path(path, "unfinned.json").read_text())
    assert note == {"clean_to": 1, "ids": {}}
    assert append(opened(), 0, 5, conn="b").number == 2


def test_doubt_outlives_the_segment_and_the_process(opened):
    """The persisted list: the segment was committed and deleted, the copy comes later."""
    first = opened()
    for number in range(4):
        append(first, number * 5, 5, conn=f"conn {number}")
        first.conn_closed(f"conn {number}", clean=False)
        first.mark_committed(number + 1)
    assert [entry.number for entry in first.batch(3, 4)] == [4]
    crash(first)
    second = opened(at_least=4)
    assert append(second, 0, 20, conn="late").copies == [list(range(20))]


def test_segments_are_deleted_one_batch_after_their_commit(opened, path):
    """The folder is bounded."""
    spool = opened()
    for number in range(6):
        append(spool, number * 100, 100, conn=f"conn {number}")
        spool.conn_closed(f"conn {number}", clean=True)
        spool.mark_committed(number + 1)
    left = [name for name in os.listdir(path) if name.endswith(".arrow")]
    assert len(left) == 1 and spool.waiting == (0, 0)


def numbers(path):
    """The segments whose files are there."""
    return sorted(int(name[:12]) for name in os.listdir(path) if name.endswith(".arrow"))


def commit_each(spool, count, done=0):
    """Store segments of five messages, each on a connection of its own, and commit each."""
    for number in range(done + 1, done + count + 1):
        append(spool, number * 5, 5, conn=f"conn {number}")
        spool.conn_closed(f"conn {number}", clean=True)
        spool.mark_committed(number)


def test_committed_segments_are_kept_for_a_time(opened, path):
    """Since their commit; they are not in Spark's way, nor do they count as its lag."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000))
    commit_each(spool, 4)
    clock[0] = 500.0
    commit_each(spool, 2, done=4)
    assert numbers(path) == [1, 2, 3, 4, 5, 6] and spool.waiting == (0, 0)
    clock[0] = 600.0
    spool.mark_committed(6)
    assert numbers(path) == [5, 6]
    assert bodies(spool, 4) == [b"%d" % number for number in range(25, 35)]


def test_committed_segments_are_kept_up_to_their_bytes(opened, path):
    """The oldest go first, however young they are; the last batch stays in any case."""
    spool = opened(kept=(600.0, 0))
    commit_each(spool, 1)
    size = os.path.getsize(spool.path_of(1))
    commit_each(spool, 4, done=1)
    assert numbers(path) == [5]
    spool.close()
    spool = opened(kept=(600.0, 3 * size + 100), position=5)
    commit_each(spool, 4, done=5)
    assert numbers(path) == [7, 8, 9]


def test_a_segment_whose_fins_are_not_proven_outlives_its_retention(opened, path):
    """As it did without any."""
    spool = opened(kept=(0.0, 0))
    for number in (1, 2, 3):
        append(spool, number * 5, 5)
        spool.mark_committed(number)
    assert numbers(path) == [1, 2, 3]
    spool.conn_closed("a", clean=True)
    append(spool, 20, 5)
    spool.mark_committed(4)
    assert numbers(path) == [4]


def test_a_start_begins_the_retention_anew(opened, path):
    """The machine may have been off for hours, and its sink have lost the last batches."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000))
    commit_each(spool, 4)
    crash(spool)
    clock[0] = 5000.0
    spool = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000), position=4)
    commit_each(spool, 1, done=4)
    clock[0] = 5599.0
    spool.mark_committed(5)
    assert numbers(path) == [1, 2, 3, 4, 5]
    clock[0] = 5600.0
    spool.mark_committed(5)
    assert numbers(path) == [5]


def test_a_checkpoint_that_went_back_is_followed(opened, path, caplog):
    """Power failed: Spark reads again what it had committed, and nothing of it is deleted."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000))
    commit_each(spool, 6)
    crash(spool)
    again = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000), position=2)
    assert "Spark's checkpoint is at 2, and was at 6 before" in caplog.text
    assert again.committed == 2 and again.waiting[0] == 20
    clock[0] = 9000.0
    again.mark_committed(2)
    assert bodies(again, 2) == [b"%d" % number for number in range(15, 35)]
    again.mark_committed(6)
    assert numbers(path) == [3, 4, 5, 6]


def test_a_crash_does_not_make_kept_segments_doubtful(opened, path, monkeypatch):
    """Their FINs are proven: a start reads no more ids than without a retention."""
    spool = opened(kept=(600.0, 1_000_000))
    commit_each(spool, 5)
    append(spool, 100, 5)
    crash(spool)
    read = []
    monkeypatch.setattr(spool_module, "read_ids", lambda path: read.append(path) or {})
    again = opened(kept=(600.0, 1_000_000), position=5)
    assert [os.path.basename(path)[:12] for path in read] == ["%012d" % n for n in (5, 6)]
    assert numbers(path) == [1, 2, 3, 4, 5, 6]
    assert append(again, 0, 5, conn="late").number == 7


def test_ids_in_doubt_of_a_kept_segment_are_noted(opened, path):
    """Its segment is not read after a crash, so the list has them."""
    spool = opened(kept=(600.0, 1_000_000))
    for number in (1, 2, 3):
        append(spool, number * 5, 5, conn=f"conn {number}")
        spool.conn_closed(f"conn {number}", clean=False)
        spool.mark_committed(number)
    crash(spool)
    note = json.loads(Path(path, "unfinned.json").read_text())
    assert note["clean_to"] == 2 and len(note["ids"]["n:1"]) == 10
    assert numbers(path) == [1, 2, 3]
    again = opened(kept=(600.0, 1_000_000), position=3)
    assert append(again, 5, 15, conn="late").copies == [list(range(15))]


def test_kept_segments_are_the_first_to_go_on_a_full_disk(opened, path, disk, caplog):
    """The flow goes on at once, if that is enough."""
    spool = opened(kept=(600.0, 1_000_000))
    commit_each(spool, 4)
    append(spool, 100, 5)
    with pytest.raises(SpoolFullError) as caught:
        disk.fill("write")
        append(spool, 105, 5)
    spool.report_full(caught.value)
    assert spool.full_error is None and numbers(path) == [4, 5]
    assert "the disk is full: deleting 3 committed segments that could still" in caplog.text
    spool.report_full(caught.value)
    assert spool.full_error is not None


def test_on_a_full_disk_a_new_query_frees_what_was_committed(opened, path, disk):
    """It begins after that."""
    spool = opened(kept=(600.0, 1_000_000))
    commit_each(spool, 4)
    crash(spool)
    disk.fill("write")
    again = opened(kept=(600.0, 1_000_000))
    assert not again.retry()
    assert numbers(path) == []
    crash(again)
    disk.fill()
    assert append(opened(at_least=4), 100, 5).number == 5


def test_on_a_full_disk_a_start_frees_what_spark_has_passed(opened, path, disk):
    """Also where the disk was full from the start, and no others."""
    spool = opened(kept=(600.0, 1_000_000))
    commit_each(spool, 4)
    crash(spool)
    disk.fill("write")
    again = opened(kept=(600.0, 1_000_000), position=2)
    assert not again.retry()
    assert numbers(path) == [2, 3, 4] and len(bodies(again, 2)) == 10
    disk.fill()
    assert again.retry()


@pytest.mark.long
def test_a_commit_among_twenty_thousand_kept_segments_is_fast(opened, path, monkeypatch):
    """Also where all expire together."""
    clock = [0.0]
    crash(opened())
    for number in range(1, 20_001):
        Path(path, str(SegmentName(number, 1, 1, 7))).touch()
    Path(path, "committed").write_text('{"seq": 20000, "clean_to": 20000}')
    spool = opened(clock=lambda: clock[0], kept=(600.0, 10_000_000), position=20_000)
    monkeypatch.setattr(spool.folder, "write_committed", lambda note: None)  # the disk's time
    monkeypatch.setattr(os, "unlink", lambda path: None)
    slowest = 0.0
    for number in range(20_001, 20_121):
        spool._segments[number] = SegmentName(number, 2, 1)
        spool._index.add(Entry(number, 1, 100))
        clock[0] += 61.0
        started = time.process_time()
        spool.mark_committed(number)
        assert [entry.number for entry in spool.batch(number - 1, number)] == [number]
        slowest = max(slowest, time.process_time() - started)
    assert len(spool._index) < 100
    assert slowest < 0.02


def test_twenty_thousand_segments_do_not_slow_planning_down(opened, monkeypatch):
    """A slow topic, or a slow Spark: the work is that of what is new, not of what is kept."""
    spool = opened()
    for number in range(1, 20_001):
        spool._segments[number] = SegmentName(number, 1, 1)
        spool._index.add(Entry(number, 1, 100))
    monkeypatch.setattr(spool.folder, "write_committed", lambda number: None)  # the disk's time
    started = time.process_time()
    for number in range(100):
        spool.mark_committed(number)
        assert spool.end_of_batch(number, 1, None) == number + 1
        assert [entry.number for entry in spool.batch(number, number + 1)] == [number + 1]
        assert spool.waiting == (20_000 - number, 100 * (20_000 - number))
    assert time.process_time() - started < 100 * 0.02


def test_a_new_query_begins_behind_what_was_committed(opened):
    """The checkpoint was deleted, the spool kept."""
    first = opened()
    append(first, 0, 5)
    append(first, 5, 5)
    first.mark_committed(1)
    first.close()
    second = opened()
    assert second.committed == 1
    assert bodies(second, second.committed) == [b"%d" % number for number in range(5, 10)]


@pytest.mark.parametrize("bound, number", [
    (EARLIEST, 0), (LATEST, 6), (after_seq(2), 2), (COMMITTED, 5)])
def test_a_new_query_begins_where_it_is_to(opened, path, bound, number):
    """What it reads again is not deleted before it is committed, and counts as its lag."""
    clock = [0.0]
    first = opened(kept=(600.0, 1_000_000))
    commit_each(first, 5)
    append(first, 30, 5)
    first.close()
    second = opened(clock=lambda: clock[0], kept=(600.0, 1_000_000), position=bound)
    assert second.committed == number and second.waiting[0] == 5 * (6 - number)
    clock[0] = 9000.0
    second.mark_committed(number)
    assert bodies(second, number) == [b"%d" % body for body in range(5 * number + 5, 35)]


def test_what_spark_says_later_counts(opened, path, caplog):
    """Had it a checkpoint after all, nothing after that is deleted."""
    spool = opened(kept=(0.0, 0))
    commit_each(spool, 2)
    for number in (3, 4, 5):
        append(spool, number * 5, 5, conn=f"conn {number}")
    spool.close()
    again = opened(kept=(0.0, 0), position=LATEST)
    assert again.committed == 5
    again.mark_committed(2)
    assert again.committed == 2 and again.waiting[0] == 15 and numbers(path) == [2, 3, 4, 5]
    assert "Spark's checkpoint is at 2, and was at 5 before" in caplog.text
    assert again.folder.read_committed().number == 2


@pytest.mark.parametrize("bound, again", [(EARLIEST, 0), (LATEST, 6), (at_time(1.0), 0)])
def test_a_start_that_is_repeated_before_the_first_commit_begins_where_it_did(
    opened, bound, again
):
    """Spark may have planned a batch, whose start it asks for; it knows the end only."""
    first = opened(kept=(600.0, 1_000_000))
    commit_each(first, 5)
    append(first, 30, 5)
    crash(first)
    second = opened(kept=(600.0, 1_000_000), position=bound)
    append(second, 35, 5)
    crash(second)
    third = opened(kept=(600.0, 1_000_000), position=bound)
    assert third.committed == again
    third.mark_committed(7)
    crash(third)
    assert opened(kept=(600.0, 1_000_000), position=LATEST).committed == 7


def test_another_start_before_the_first_commit_is_a_new_one(opened):
    """The user has changed the option."""
    first = opened(kept=(600.0, 1_000_000))
    commit_each(first, 5)
    for bound, number in ((EARLIEST, 0), (after_seq(3), 3), (COMMITTED, 3), (LATEST, 5)):
        crash(first)
        first = opened(kept=(600.0, 1_000_000), position=bound)
        assert first.committed == number


def test_a_query_cannot_begin_where_nothing_is_kept(opened, caplog):
    """Unless the user accepts what there is; the lock is given back."""
    first = opened()
    commit_each(first, 5)
    first.close()
    with pytest.raises(DataLossError, match=r"segments from 5 on; .* 1\.\.4 are not there .*set f"):
        opened(position=after_seq(0))
    assert opened(position=after_seq(0), fail_on_data_loss=False).committed == 4
    assert "continuing because of failOnDataLoss=false" in caplog.text


def test_where_a_query_begins_is_noted_later_on_a_full_disk(opened, disk):
    """With the first note that can be written."""
    first = opened(kept=(600.0, 1_000_000))
    commit_each(first, 5)
    crash(first)
    disk.fill("write")
    second = opened(kept=(600.0, 1_000_000), position=EARLIEST)
    assert second.committed == 0 and len(bodies(second)) == 25
    disk.fill()
    second.mark_committed(0)
    assert second.folder.read_committed() == (0, 4, "earliest")


def test_a_lost_folder_is_not_taken_for_a_new_one(opened):
    """Spark's checkpoint knows numbers that the folder has never had."""
    with pytest.raises(DataLossError, match="the checkpoint is at 7"):
        opened(at_least=7)
    spool = opened(at_least=7, fail_on_data_loss=False)
    assert append(spool, 0, 5).number == 8


def test_a_missing_segment_is_named(opened):
    """Its messages were finished at nsqd, so no other copy exists."""
    spool = opened()
    for first in (0, 5, 10):
        append(spool, first, 5)
    os.unlink(spool.path_of(2))
    crash(spool)
    again = opened()
    with pytest.raises(DataLossError, match=r"lacks segments 2 of batch \(0, 3\]"):
        again.batch(0, 3)
    assert [entry.number for entry in again.batch(0, 3, fail_on_data_loss=False)] == [1, 3]


def damage(spool, number):
    """Flip three bytes in the middle of a segment."""
    path = Path(spool.path_of(number))
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(255 - b for b in data[middle:middle + 3])
                     + data[middle + 3:])


def test_a_damaged_segment_is_found_at_the_start(opened, caplog):
    """Its ids are needed; failOnDataLoss=false goes on, with one warning for the segment."""
    first = opened()
    for number in (0, 5):
        append(first, number, 5)
    damage(first, 1)
    crash(first)
    with pytest.raises(DamagedSegmentError, match="5 messages of offset 1 of nsqd n:1"):
        opened()
    for _ in range(2):
        again = opened(fail_on_data_loss=False)
        crash(again)
    assert caplog.text.count("is damaged") == 1
    assert "continuing because of failOnDataLoss=false" in caplog.text


def test_a_damaged_segment_that_spark_has_is_no_loss(opened, caplog):
    """Its messages were processed; only duplicates of them are not detected any more."""
    first = opened()
    append(first, 0, 5)
    first.mark_committed(1)
    damage(first, 1)
    crash(first)
    assert append(opened(), 5, 5).number == 2
    assert "Spark has its messages, but duplicates of them are not detected" in caplog.text


def test_a_segment_that_cannot_be_read_is_named(opened):
    """It may be readable later, so it is not taken for lost."""
    first = opened()
    append(first, 0, 5)
    segment = Path(first.path_of(1))
    crash(first)
    segment.unlink()
    segment.mkdir()
    with pytest.raises(SpoolError, match="segment 000000000001-.* cannot be read") as caught:
        opened()
    assert not isinstance(caught.value, DataLossError)


def without_checksums(path):
    """Make a spool what an earlier version wrote."""
    for file in Path(path).glob("*.arrow"):
        number, epoch, rows, _ = file.name.split("-")
        file.rename(file.with_name(f"{number}-{epoch}-{rows}.arrow"))
    Path(path, "meta.json").write_text('{"version": 1, "topic": "t", "channel": "c"}')


def test_a_spool_without_checksums_is_read_on(opened, path, caplog):
    """One warning for the spool; what comes from now on is checked."""
    first = opened()
    for number in (0, 5):
        append(first, number, 5)
    first.close()
    without_checksums(path)
    second = opened()
    append(second, 10, 5)
    assert bodies(second) == [b"%d" % number for number in range(15)]
    [record] = caplog.records
    assert "2 segments of an earlier version, without a checksum" in record.getMessage()
    assert json.loads(Path(path, "meta.json").read_text())["version"] == 2
    assert [name.checksum is None for name, _ in sorted(second.folder.segments())] == [
        True, True, False]


def test_a_damaged_stray_is_an_error(opened, caplog):
    """Its messages are finished, too; failOnDataLoss=false leaves the file, and warns once."""
    old = opened()
    crash(old)
    new = opened()
    append(new, 0, 5)
    append(old, 5, 5)
    damage(old, 1)
    crash(new)
    with pytest.raises(DamagedSegmentError, match="5 messages of offset 1"):
        opened()
    again = opened(fail_on_data_loss=False)
    again._looked -= 3600
    again.look_for_strays()
    assert caplog.text.count("is damaged") == 1


def test_a_stray_of_a_fenced_writer_is_adopted(opened):
    """It had lost its lock without knowing, and has finished these messages at nsqd."""
    old = opened()
    append(old, 0, 5)
    crash(old)
    new = opened()
    append(new, 5, 5)
    append(old, 10, 5)  # linked under number 2 of epoch 1
    new._clock = lambda: time.monotonic() + 60.0
    new.look_for_strays()
    assert sorted(bodies(new), key=int) == [b"%d" % number for number in range(15)]
    assert append(new, 10, 5, conn="c").copies == [[0, 1, 2, 3, 4]]


def test_a_stray_that_came_again_is_not_adopted_twice(opened):
    """Its FIN was refused, and the copy is durable already."""
    old = opened()
    crash(old)
    new = opened()
    append(new, 0, 5)
    append(old, 0, 5)
    new._clock = lambda: time.monotonic() + 60.0
    new.look_for_strays()
    assert new.last == 1
    assert all(name.epoch == 2 for name, _ in new.folder.segments())


def test_a_fenced_writer_whose_file_was_cleaned_up_fails(opened):
    """It must not send FIN for what is not there."""
    old = opened()
    tmp = old.write_tmp(encode_segment("t", "c", [("n:1", messages(0, 5))]))
    crash(old)
    opened()
    with pytest.raises(SpoolLockedError, match="taken this spool over"):
        old.append(tmp, 5, [claim(0, 5)])


def test_a_full_disk_is_explained_and_leaves_no_file(opened, path, monkeypatch):
    """Nothing is published, so nothing is finished."""
    spool = opened()

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder_module.os, "write", full)
        with pytest.raises(SpoolError, match="free some space; nothing .* acknowledged"):
            append(spool, 0, 5)
    assert not [name for name in os.listdir(path) if name.startswith(".tmp")]
    assert append(spool, 0, 5).number == 1


class FullDisk:
    """Lets calls of the system fail as on a full disk, or beyond a quota."""

    def __init__(self, patch):
        self.code, self.calls, self.limit = errno.ENOSPC, set(), None
        for name in ("open", "write", "fsync", "link", "replace"):
            self._wrap(patch, folder_module.os, name, name)
        self._wrap(patch, folder_module, "sync_folder", "fsync of the folder")

    def _wrap(self, patch, module, name, call):
        real = getattr(module, name)

        def maybe_fail(*arguments, **named):
            fails = call in self.calls and not (call == "open" and not arguments[1] & os.O_EXCL)
            if call == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
                fails = False
            if call == "write" and self.limit is not None:
                fails = os.fstat(arguments[0]).st_size + len(arguments[1]) > self.limit
            if fails:
                raise OSError(self.code, os.strerror(self.code))
            return real(*arguments, **named)

        patch.setattr(module, name, maybe_fail)

    def fill(self, *calls, code=errno.ENOSPC):
        """From now on these calls fail; without any, none does."""
        self.code, self.calls = code, set(calls)


@pytest.fixture
def disk(monkeypatch):
    """The disk of the spool."""
    with monkeypatch.context() as patch:
        yield FullDisk(patch)


def arrow_files(path):
    """What is in the folder under a number, or half written."""
    return [name for name in os.listdir(path) if name.endswith(".arrow") or name[0] == "."]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "fsync of the folder"])
def test_a_full_disk_takes_nothing_and_leaves_nothing(opened, path, disk, call, code):
    """Whichever call fails: no number is used, no file is left, and later segments are stored."""
    spool = opened()
    append(spool, 0, 5)
    disk.fill(call, code=code)
    for _ in range(2):
        with pytest.raises(SpoolFullError, match="free some space; nothing .* acknowledged"):
            append(spool, 5, 5)
    assert spool.last == 1 and len(arrow_files(path)) == 1
    disk.fill()
    assert append(spool, 5, 5).number == 2
    crash(spool)
    assert bodies(opened()) == [b"%d" % number for number in range(10)]


def test_a_full_disk_is_reported_once_and_heals(opened, path, disk, caplog):
    """One WARNING with what to do, one INFO when it goes on; it is tried with as many bytes."""
    caplog.set_level("INFO", "nsqclient.spark")
    spool = opened()
    disk.limit = 5000
    for count in (200, 500):
        with pytest.raises(SpoolFullError) as caught:
            append(spool, 0, count)
        spool.report_full(caught.value)
    assert not spool.retry() and spool.full_for > 0 and spool.full_error.needed > 15_000
    disk.limit = None
    assert spool.retry() and spool.retry()
    assert spool.full_error is None and spool.full_for == 0 and not arrow_files(path)
    assert [(record.levelname, record.getMessage()[-46:]) for record in caplog.records] == [
        ("WARNING", "reading from nsqd is paused until there is space"[-46:]),
        ("INFO", "there is space again; reading from nsqd continues"[-46:])]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace", "fsync of the folder"])
def test_on_a_full_disk_what_is_spooled_is_served_and_committed(opened, path, disk, call):
    """Segments that Spark has committed are deleted, though no note of it can be written."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0])
    for first in (0, 5, 10):
        append(spool, first, 5)
    spool.conn_closed("a", clean=False)
    disk.fill(call)
    for start, number in ((0, 1), (1, 3)):
        assert len(bodies(spool, start)) == 15 - 5 * start
        spool.mark_committed(number)
    assert spool.waiting == (0, 0) and spool.full_error is not None
    assert len(arrow_files(path)) == 2
    clock[0] += 3600
    assert not spool.retry()  # the last batch makes space, too
    assert arrow_files(path) == [os.path.basename(spool.path_of(3))]
    disk.fill()
    assert spool.retry()
    spool.mark_committed(3)
    crash(spool)
    again = opened(at_least=3)
    assert again.committed == 3
    assert append(again, 0, 20).copies == [list(range(15))]


@pytest.mark.parametrize("noted_after", [None, 0.0], ids=["stream", "availableNow"])
def test_the_last_commit_makes_space_where_its_notes_still_fit(
    opened, path, disk, caplog, noted_after
):
    """No other commit will come: nothing waits. A copy that comes later is recognised."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0])
    if noted_after is not None:
        spool.noted_after = noted_after
    for first in (0, 5, 10):
        append(spool, first, 5)
    spool.conn_closed("a", clean=False)
    spool.mark_committed(3)
    disk.limit = 1000
    with pytest.raises(SpoolFullError, match=r"for [0-9,]+ bytes \(free") as caught:
        append(spool, 15, 500)
    spool.report_full(caught.value)
    if noted_after is None:
        assert not spool.retry() and len(arrow_files(path)) == 3
        clock[0] += 60
    assert not spool.retry() and not arrow_files(path)
    assert "deleting 3 committed segments that could still be replayed" in caplog.text
    disk.limit = None
    assert spool.retry()
    crash(spool)
    again = opened(at_least=3, position=3)
    assert append(again, 0, 20).copies == [list(range(15))]
    assert append(again, 15, 5).number == 4


def test_on_a_disk_that_was_full_a_batch_has_half_of_what_fits(opened, disk):
    """So there is a next one, after which the one before may go; more when more fits."""
    spool = opened()
    for first in (0, 5, 10):
        append(spool, first, 5)
    assert spool.most_in_batch is None
    spool.report_full(SpoolFullError("/x", "no space"))
    before = spool.most_in_batch
    assert before == spool.waiting[1] // 2
    assert spool.end_of_batch(0, None, before) == 1
    append(spool, 15, 5)
    assert spool.most_in_batch == spool.waiting[1] // 2 > before


def test_a_crash_on_a_full_disk_is_no_data_loss(opened, disk):
    """The number of the last segment is known, though no note could be written."""
    clock = [0.0]
    spool = opened(clock=lambda: clock[0])
    for first in (0, 5):
        append(spool, first, 5)
    disk.fill("write")
    spool.mark_committed(2)
    clock[0] += 3600
    spool.retry()
    crash(spool)
    disk.fill()
    assert append(opened(at_least=2), 10, 5).number == 3


def test_notes_that_had_to_wait_are_written_once_there_is_space(opened, disk):
    """Also when Spark has nothing new to commit."""
    spool = opened()
    for first in (0, 5):
        append(spool, first, 5)
    disk.fill("write")
    spool.mark_committed(2)
    assert spool.folder.read_committed().number == 0
    disk.fill()
    spool.mark_committed(2)
    assert spool.folder.read_committed().number == 2


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "fsync of the folder"])
def test_a_start_on_a_full_disk_serves_what_is_there(opened, path, disk, call):
    """The epoch is taken with the first segment that can be stored."""
    first = opened()
    append(first, 0, 5)
    crash(first)
    disk.fill(call)
    spool = opened(at_least=1)
    assert len(bodies(spool)) == 5
    spool.mark_committed(1)
    with pytest.raises(SpoolFullError):
        append(spool, 5, 5)
    disk.fill()
    assert spool.retry()
    assert append(spool, 5, 5).number == 2
    spool.close()
    assert bodies(opened(), 1) == [b"5", b"6", b"7", b"8", b"9"]


def test_another_start_is_noticed_after_a_wait_for_space(opened, disk):
    """It has no epoch yet, and must not write under an older one."""
    disk.fill()
    crash(opened())
    disk.fill("write")
    waiting = opened()
    disk.fill()
    crash(waiting)
    other = opened()
    append(other, 0, 5)
    for _ in range(2):
        with pytest.raises(SpoolLockedError, match="another process started with it"):
            append(waiting, 0, 5)
    assert bodies(other) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_link_that_cannot_be_taken_back_ends_the_query(opened, disk, monkeypatch):
    """The number may be taken: only the next start finds out."""
    spool = opened()
    real = os.unlink

    def unlink(name):
        if name.endswith(".arrow"):
            raise OSError(errno.EIO, "Input/output error")
        real(name)

    disk.fill("fsync of the folder")
    with monkeypatch.context() as patch:
        patch.setattr(folder_module.os, "unlink", unlink)
        with pytest.raises(SpoolError, match="cannot be deleted") as caught:
            append(spool, 0, 5)
    assert not isinstance(caught.value, SpoolFullError)
    disk.fill()
    with pytest.raises(SpoolError, match="cannot be deleted"):
        append(spool, 5, 5)


def test_a_stray_waits_for_space(opened, disk):
    """It is adopted later, and lost at no moment."""
    old = opened()
    crash(old)
    new = opened()
    append(new, 0, 5)
    append(old, 5, 5)
    disk.fill("write")
    new._looked -= 3600
    new.mark_committed(1)
    new.look_for_strays()
    disk.fill()
    assert new.last == 1 and new.full_error is not None
    new._looked -= 3600
    new.look_for_strays()
    append(new, 10, 5)
    new.mark_committed(2)
    assert sorted(bodies(new, 1), key=int) == [b"%d" % number for number in range(5, 15)]


def test_a_number_that_may_be_taken_is_not_given_again(opened, monkeypatch):
    """The folder could not be brought to disk: only the next start finds out what is there."""
    spool = opened()

    def broken(path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "sync_folder", broken)
        with pytest.raises(SpoolError, match="Input/output error"):
            append(spool, 0, 5)
    with pytest.raises(SpoolError, match="Input/output error"):
        append(spool, 5, 5)
    crash(spool)
    again = opened()
    assert bodies(again) == [b"%d" % number for number in range(5)]
    assert append(again, 0, 5).copies == [[0, 1, 2, 3, 4]]


def test_new_folders_are_brought_to_disk_with_their_names(tmp_path, monkeypatch):
    """A folder that a power failure takes away would take what is in it along."""
    synced = []
    monkeypatch.setattr(folder_module, "sync_folder", synced.append)
    folder_module.make_durably(str(tmp_path / "a" / "b"))
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
    folder_module.make_durably(str(tmp_path / "a" / "b"))
    assert len(synced) == 2


@pytest.mark.parametrize("name, text", [
    ("committed", "[]"), ("committed", "{}"), ("committed", '{"seq": "x"}'),
    ("unfinned.json", "{}"), ("unfinned.json", '{"clean_to": 1, "ids": [1]}'),
    ("unfinned.json", '{"clean_to": 1, "ids": {"n:1": ["0'), ("epoch-000001", "x"),
])
def test_a_note_without_its_fields_is_an_error(opened, path, name, text):
    """Half a line, another type, a missing word: the file is named."""
    opened().close()
    Path(path, name).write_text(text)
    with pytest.raises(SpoolMismatchError, match=f"{name} is damaged"):
        opened()


def test_half_written_files_of_a_crash_are_cleaned_up(opened, path):
    """They have no number."""
    crash(opened())
    with open(os.path.join(path, ".tmp-1-1"), "wb") as file:
        file.write(b"half")
    opened()
    assert not os.path.exists(os.path.join(path, ".tmp-1-1"))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    """A file is in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot be used"):
        Spool(str(tmp_path / "file" / "spool"), "t", "c").open(patience=0)


def test_every_segment_is_where_its_name_says(opened):
    """``path_of`` is what executors are given."""
    spool = opened()
    append(spool, 0, 5)
    checksum = checksum_of(Path(spool.path_of(1)).read_bytes())
    assert os.path.basename(spool.path_of(1)) == str(SegmentName(1, 1, 5, checksum))


def test_a_file_is_on_the_disk_when_it_was_written(tmp_path, monkeypatch):
    """All of it: fsync comes after the last byte, before the method returns."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    folder_module.write_durably(str(tmp_path / "segment"), b"x" * 100_000)
    [at_sync] = synced
    assert at_sync.st_ino == (tmp_path / "segment").stat().st_ino
    assert at_sync.st_size == 100_000
