"""The data path: its lock, nsqd.dat, and the files of the queues."""

import json
import os

import pytest

from nsqclient.devserver.broker import TopicMetadata
from nsqclient.devserver.persistence import DataPath, DataPathError
from nsqclient.devserver.queues import StoredMessage


@pytest.fixture
def data(tmp_path):
    path = DataPath(str(tmp_path))
    yield path
    path.close()


def make_message(number, attempts=0, size=4):
    return StoredMessage(b"%016x" % number, number, b"b" * size, attempts)


def crash(spool):
    """Leave the files as the end of the process does."""
    os.close(spool._descriptor)


def filled(data, *numbers, size=4):
    """Return the queue of topic t with messages of these numbers."""
    spool = data.open_disk_queue("t", None)
    for number in numbers:
        spool.put(make_message(number, size=size))
    return spool


def numbers(messages):
    return [message.timestamp for message in messages]


def test_missing_data_path_is_an_error(tmp_path):
    with pytest.raises(DataPathError, match="failed to lock data-path: No such file"):
        DataPath(str(tmp_path / "no"))


def test_metadata_has_nsqds_format(data, tmp_path):
    topics = [
        TopicMetadata("events", False, {"archive": True}),
        TopicMetadata("other", True, {}),
    ]
    data.save(topics)
    assert (tmp_path / "nsqd.dat").read_text() == (
        '{"topics":[{"name":"events","paused":false,"channels":[{"name":"archive","paused":true}]},'
        '{"name":"other","paused":true,"channels":null}],"version":"1.3.0"}'
    )
    assert data.load() == topics


def test_damaged_metadata_is_an_error(data, tmp_path):
    assert data.load() == []
    (tmp_path / "nsqd.dat").write_text('{"topics":[{"name":"../x","paused":false,"channels":[]}]}')
    assert data.load() == []
    for text in ("{", "[]", '{"topics":[{"paused":1}]}'):
        (tmp_path / "nsqd.dat").write_text(text)
        with pytest.raises(DataPathError, match="is damaged"):
            data.load()


def test_disk_queue_is_first_in_first_out(data, tmp_path):
    spool = data.open_disk_queue("t", "c")
    for number in range(3):
        spool.put(make_message(number, attempts=number))
    assert numbers(spool.peek()) == [0, 1, 2] and spool.depth == 3
    taken = [spool.get() for _ in range(3)]
    assert [(m.timestamp, m.attempts, m.id, m.body) for m in taken] == [
        (number, number, b"%016x" % number, b"bbbb") for number in range(3)
    ]
    assert (tmp_path / "t:c.spool").stat().st_size == 0
    spool.close()
    assert os.listdir(tmp_path) == []


def test_disk_queue_reads_all_records_after_a_crash(data, tmp_path):
    spool = filled(data, *range(3))
    spool.get()
    file = tmp_path / "t.spool"
    whole = file.read_bytes()
    spool.delete()
    file.write_bytes(whole[:-1])
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [0, 1] and again.depth == 2
    again.put(make_message(5))
    assert numbers(again.peek()) == [0, 1, 5]
    again.delete()


def test_read_position_stays_valid_over_crashes(data, tmp_path):
    spool = filled(data, *range(4))
    spool.get()
    spool.close()
    crashed = data.open_disk_queue("t", None)
    crashed.put(make_message(4))
    crashed.get()
    crash(crashed)
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [1, 2, 3, 4] and again.depth == 4
    crash(again)
    last = data.open_disk_queue("t", None)
    assert numbers(last.peek()) == [1, 2, 3, 4]
    last.delete()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("empty", [
    lambda spool: spool.clear(), lambda spool: spool.delete(),
    lambda spool: [spool.get() for _ in range(spool.depth)],
])
@pytest.mark.parametrize("size", [4, 600_000])
def test_read_position_ends_with_the_records(data, tmp_path, empty, size):
    """An old position must not hide the messages of a file that was emptied since."""
    spool = filled(data, *range(3), size=size)
    spool.get()
    spool.close()
    crashed = data.open_disk_queue("t", None)
    empty(crashed)
    assert not (tmp_path / "t.meta").exists()
    crashed.put(make_message(7, size=size))
    crashed.put(make_message(8, size=size))
    crash(crashed)
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [7, 8]
    again.delete()


@pytest.mark.parametrize("position", [-34, 1, 35, 10**6, 10**30, 1e999])
def test_read_position_of_another_file_is_ignored(data, tmp_path, position):
    """A position that is neither the start of a record nor the end of the file is ignored."""
    spool = filled(data, 1, 2)
    spool.close()
    (tmp_path / "t.meta").write_text(json.dumps({"read": position}))
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [1, 2] and again.depth == 2
    again.delete()


def test_failed_write_leaves_the_file_unchanged(data, monkeypatch):
    spool = filled(data, 1)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:10], at))
    with pytest.raises(OSError, match="No space left"):
        spool.put(make_message(2))
    monkeypatch.undo()
    spool.put(make_message(3))
    assert numbers(spool.peek()) == [1, 3]
    spool.delete()


def test_full_disk_is_logged_once_until_a_write_succeeds(data, monkeypatch, caplog):
    spool = filled(data, 0)
    monkeypatch.setattr(os, "pwrite", lambda fd, record, at: 0)
    for number in range(3):
        with pytest.raises(OSError, match="No space left"):
            spool.put(make_message(number))
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert data.write_error is not None
    monkeypatch.undo()
    spool.put(make_message(4))
    assert data.write_error is None
    spool.delete()


def test_file_that_cannot_be_created_is_a_write_error(data, tmp_path):
    spool = data.open_disk_queue("t", None)
    (tmp_path / "t.spool").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        spool.put(make_message(1))
    assert data.write_error is not None and spool.depth == 0


def test_read_position_that_cannot_be_written_costs_duplicates(data, tmp_path, caplog):
    spool = filled(data, 1, 2)
    spool.get()
    (tmp_path / "t.meta").mkdir()
    spool.close()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    (tmp_path / "t.meta").rmdir()
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [1, 2]
    again.delete()
