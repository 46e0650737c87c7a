"""The data path: its lock, nsqd.dat, and the messages on disk."""

import sqlite3
import subprocess
import sys

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


def filled(data, *numbers):
    """Return the queue of topic t with messages of these numbers."""
    queue = data.open_disk_queue("t", None)
    for number in numbers:
        queue.put(make_message(number))
    return queue


def fill_disk(data):
    """Let the database take no further page."""
    data._database.execute("PRAGMA max_page_count = 1")


def free_disk(data):
    data._database.execute("PRAGMA max_page_count = 1073741823")


def refuse_deletes(data, refused=True):
    """Let deletes fail, as on a disk without room for the journal."""
    def authorize(action, *_args):
        is_denied = refused and action == sqlite3.SQLITE_DELETE
        return sqlite3.SQLITE_DENY if is_denied else sqlite3.SQLITE_OK

    data._database.set_authorizer(authorize)


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


def test_disk_queue_is_first_in_first_out(data):
    queue, other = data.open_disk_queue("t", "c"), filled(data, 7)
    for number in range(3):
        queue.put(make_message(number, attempts=number))
    assert numbers(queue.peek()) == [0, 1, 2] and queue.depth == 3
    taken = [queue.get() for _ in range(3)]
    assert [(m.timestamp, m.attempts, m.id, m.body) for m in taken] == [
        (number, number, b"%016x" % number, b"bbbb") for number in range(3)
    ]
    assert queue.depth == 0 and numbers(other.peek()) == [7]


def test_a_cleared_queue_takes_new_messages(data):
    queue = filled(data, 1, 2)
    queue.clear()
    assert queue.depth == 0 and queue.peek() == []
    queue.put(make_message(3))
    assert numbers(queue.peek()) == [3]


def test_messages_outlive_the_process(tmp_path):
    """A killed process has closed nothing."""
    code = (
        "import os, sys\n"
        "from nsqclient.devserver.persistence import DataPath\n"
        "from nsqclient.devserver.queues import StoredMessage\n"
        "queue = DataPath(sys.argv[1]).open_disk_queue('t', None)\n"
        "for number in range(4):\n"
        "    queue.put(StoredMessage(b'%016x' % number, number, b'x'))\n"
        "queue.get()\n"
        "os._exit(0)\n")
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    data = DataPath(str(tmp_path))
    again = data.open_disk_queue("t", None)
    assert numbers(again.peek()) == [1, 2, 3] and again.depth == 3
    again.put(make_message(4))
    assert numbers(again.peek()) == [1, 2, 3, 4]
    data.close()


def test_full_disk_is_logged_once_until_a_write_succeeds(data, caplog):
    """An ERROR says which folder, why, and what follows."""
    queue = filled(data, 0)
    fill_disk(data)
    for number in range(3):
        with pytest.raises(OSError, match="No space left"):
            queue.put(make_message(number, size=10_000))
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert data.write_error is not None and numbers(queue.peek()) == [0]
    free_disk(data)
    queue.put(make_message(4, size=10_000))
    assert data.write_error is None and numbers(queue.peek()) == [0, 4]


def test_what_cannot_be_deleted_is_delivered_once(data):
    """The messages come again after a crash, but no sooner."""
    queue = filled(data, 0, 1, 2, 3)
    refuse_deletes(data)
    assert numbers([queue.get(), queue.get()]) == [0, 1] and data.write_error is not None
    queue.put(make_message(4))
    assert numbers(queue.peek()) == [2, 3, 4] and queue.depth == 3
    assert numbers(data.open_disk_queue("t", None).peek()) == [0, 1, 2, 3, 4]
    refuse_deletes(data, False)
    assert numbers([queue.get()]) == [2] and data.write_error is None
    assert numbers(data.open_disk_queue("t", None).peek()) == [3, 4]
    assert numbers([queue.get(), queue.get()]) == [3, 4] and queue.depth == 0
    queue.put(make_message(5))
    assert numbers([queue.get()]) == [5]


def test_a_cleared_queue_forgets_what_could_not_be_deleted(data):
    queue = filled(data, 0, 1)
    refuse_deletes(data)
    queue.get()
    refuse_deletes(data, False)
    queue.clear()
    queue.put(make_message(2))
    assert numbers(queue.peek()) == [2] and numbers([queue.get()]) == [2]


def test_a_database_that_is_none_is_an_error(tmp_path):
    (tmp_path / "messages.sqlite").write_bytes(b"x" * 5000)
    for _ in range(2):  # the first one has released its lock
        with pytest.raises(DataPathError, match="failed to open .*messages.sqlite: "):
            DataPath(str(tmp_path))
