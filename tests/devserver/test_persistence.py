"""The data path: its lock, nsqd.dat, and the files of the queues."""

from __future__ import annotations

import json
import os

import pytest

from nsqclient.devserver.catalog import SavedChannel, SavedTopic
from nsqclient.devserver.persistence import DataPath, DataPathError
from nsqclient.devserver.store import StoredMessage


@pytest.fixture
def data(tmp_path):
    path = DataPath(str(tmp_path))
    yield path
    path.close()


def make_message(number, attempts=0, size=4):
    return StoredMessage(b"%016x" % number, number, b"b" * size, attempts)


def numbers(messages):
    return [message.timestamp for message in messages]


def test_one_server_at_a_time(data, tmp_path):
    """A data path that is in use is refused with nsqd's words."""
    with pytest.raises(DataPathError, match="failed to lock data-path: cannot flock directory"):
        DataPath(str(tmp_path))


def test_missing_directory(tmp_path):
    """A data path has to exist."""
    with pytest.raises(DataPathError, match="failed to lock data-path: No such file"):
        DataPath(str(tmp_path / "no"))


def test_metadata_is_nsqds(data, tmp_path):
    """nsqd.dat has nsqd's format, and comes back as it was saved."""
    topics = [
        SavedTopic("events", False, (SavedChannel("archive", True),)),
        SavedTopic("other", True, ()),
    ]
    data.save(topics)
    assert (tmp_path / "nsqd.dat").read_text() == (
        '{"topics":[{"name":"events","paused":false,"channels":[{"name":"archive","paused":true}]},'
        '{"name":"other","paused":true,"channels":null}],"version":"1.3.0"}'
    )
    assert data.load() == topics


def test_metadata_missing_or_damaged(data, tmp_path):
    """No file means no topics; a damaged one is an error, and bad names are left out."""
    assert data.load() == []
    (tmp_path / "nsqd.dat").write_text('{"topics":[{"name":"../x","paused":false,"channels":[]}]}')
    assert data.load() == []
    for text in ("{", "[]", '{"topics":[{"paused":1}]}'):
        (tmp_path / "nsqd.dat").write_text(text)
        with pytest.raises(DataPathError, match="is damaged"):
            data.load()


def test_spool_is_a_queue(data, tmp_path):
    """Messages come out as they went in; an empty queue leaves no file behind."""
    spool = data.open_spool("t", "c")
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


def test_spool_goes_on_where_it_was(data):
    """After a clean close reading goes on behind what was read."""
    spool = data.open_spool("t", None)
    for number in range(4):
        spool.put(make_message(number, size=200_000))
    spool.get()
    spool.close()
    again = data.open_spool("t", None)
    again.put(make_message(9))
    assert again.depth == 4
    assert numbers([again.get() for _ in range(4)]) == [1, 2, 3, 9]
    again.close()


def test_spool_after_a_crash(data, tmp_path):
    """Without a clean close all that is in the file comes again, save a cut-off record."""
    spool = data.open_spool("t", None)
    for number in range(3):
        spool.put(make_message(number))
    spool.get()
    file = tmp_path / "t.spool"
    whole = file.read_bytes()
    spool.delete()
    file.write_bytes(whole[:-1])
    again = data.open_spool("t", None)
    assert numbers(again.peek()) == [0, 1] and again.depth == 2
    again.put(make_message(5))
    assert numbers(again.peek()) == [0, 1, 5]
    again.delete()


def test_stale_meta_is_not_used_twice(data, tmp_path):
    """The note of a clean close is gone once the file is in use again."""
    spool = data.open_spool("t", None)
    spool.put(make_message(1))
    spool.put(make_message(2))
    spool.get()
    spool.close()
    assert json.loads((tmp_path / "t.meta").read_text())["depth"] == 1
    again = data.open_spool("t", None)
    assert not (tmp_path / "t.meta").exists()
    again.clear()
    assert again.depth == 0
    again.close()


def test_failed_write_leaves_the_file_as_it_was(data, monkeypatch):
    """A message that does not fit on the disk is an error, and the others stay readable."""
    spool = data.open_spool("t", None)
    spool.put(make_message(1))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:10], at))
    with pytest.raises(OSError, match="No space left"):
        spool.put(make_message(2))
    monkeypatch.undo()
    spool.put(make_message(3))
    assert numbers(spool.peek()) == [1, 3]
    spool.delete()
