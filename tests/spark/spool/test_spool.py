"""The spool on disk: numbers, locks, crashes, strays, full disks."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from nsqclient.spark.errors import (  # noqa: E402 - needs pyarrow
    DataLossError,
    SpoolError,
    SpoolLockedError,
    SpoolMismatchError,
)
from nsqclient.spark.spool import folder as folder_module  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.known_ids import Claim  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.names import SegmentName  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.segment import encode_segment, read_rows  # noqa: E402 - needs pyarrow
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

    def start(topic="t", **arguments):
        spool = Spool(path, topic, "c")
        spools.append(spool)
        spool.open(patience=0, **arguments)
        return spool

    yield start
    for spool in spools:
        spool.close()


def append(spool, first, count, conn="a"):
    """Store some messages; return the verdict."""
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
    """It is named, so that somebody can look."""
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
    verdict = append(spool, 3, 4, conn="b")
    assert verdict.number == 0 and verdict.copies == [[0, 1]]
    assert spool.last == 1


def test_a_lot_of_copies_alone_makes_no_segment(opened):
    """They are counted, and may be finished."""
    spool = opened()
    append(spool, 0, 5)
    assert spool.append("", 0, [], [claim(0, 5, "b")]) == (0, None)
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


def test_segments_go_one_batch_after_they_were_committed(opened, path):
    """The folder is bounded."""
    spool = opened()
    for number in range(6):
        append(spool, number * 100, 100, conn=f"conn {number}")
        spool.conn_closed(f"conn {number}", clean=True)
        spool.mark_committed(number + 1)
    left = [name for name in os.listdir(path) if name.endswith(".arrow")]
    assert len(left) == 1 and spool.waiting == (0, 0)


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


def test_a_lost_folder_is_not_taken_for_a_new_one(opened):
    """Spark's checkpoint knows numbers that the folder has never had."""
    with pytest.raises(DataLossError, match="the checkpoint is at 7"):
        opened(at_least=7)
    spool = opened(at_least=7, fail_on_data_loss=False)
    assert append(spool, 0, 5).number == 8


def test_a_missing_segment_is_named(opened):
    """Its messages were acknowledged, so nobody else has them."""
    spool = opened()
    for first in (0, 5, 10):
        append(spool, first, 5)
    os.unlink(spool.path_of(2))
    crash(spool)
    again = opened()
    with pytest.raises(DataLossError, match=r"lacks segments 2 of batch \(0, 3\]"):
        again.batch(0, 3)
    assert [entry.number for entry in again.batch(0, 3, fail_on_data_loss=False)] == [1, 3]


def test_a_stray_of_a_fenced_writer_is_adopted(opened):
    """It had lost its lock without knowing, and has finished these messages at nsqd."""
    old = opened()
    append(old, 0, 5)
    crash(old)
    new = opened()
    append(new, 5, 5)
    append(old, 10, 5)  # linked under number 2 of epoch 1
    new.mark_committed(1)
    assert sorted(bodies(new), key=int) == [b"%d" % number for number in range(15)]
    assert append(new, 10, 5, conn="c").copies == [[0, 1, 2, 3, 4]]


def test_a_stray_that_came_again_is_not_adopted_twice(opened):
    """Its FIN was refused, and the copy is durable already."""
    old = opened()
    crash(old)
    new = opened()
    append(new, 0, 5)
    append(old, 0, 5)
    new.mark_committed(1)
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
        with pytest.raises(SpoolError, match="free some space .* nothing .* acknowledged"):
            append(spool, 0, 5)
    assert not [name for name in os.listdir(path) if name.startswith(".tmp")]
    assert append(spool, 0, 5).number == 1


def test_a_number_that_may_be_taken_is_not_given_again(opened, monkeypatch):
    """The folder could not be brought to disk: only the next start can tell what is there."""
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
def test_a_note_that_says_nothing_is_an_error(opened, path, name, text):
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
    assert os.path.basename(spool.path_of(1)) == str(SegmentName(1, 1, 5))


def test_only_the_owner_reads_the_spool(path):
    """Files are 0600 and folders 0700, those above that are new included."""
    former = os.umask(0)
    try:
        spool = Spool(os.path.join(path, "deeper"), "t", "c")
        spool.open(patience=0)
        append(spool, 0, 3)
        spool.close()
    finally:
        os.umask(former)
    modes = {entry.stat().st_mode & 0o777 for entry in Path(path).rglob("*") if entry.is_file()}
    assert modes == {0o600}
    folders = [Path(path), *(entry for entry in Path(path).rglob("*") if entry.is_dir())]
    assert {entry.stat().st_mode & 0o777 for entry in folders} == {0o700}


def test_a_file_is_on_the_disk_when_it_was_written(tmp_path, monkeypatch):
    """All of it: fsync comes after the last byte, before the method returns."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    folder_module.write_durably(str(tmp_path / "segment"), b"x" * 100_000)
    [at_sync] = synced
    assert at_sync.st_ino == (tmp_path / "segment").stat().st_ino
    assert at_sync.st_size == 100_000
