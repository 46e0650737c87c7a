"""The writer's side of a shard, on a folder and on an object store."""

from unittest.mock import Mock

import pytest

from nsqclient.spark.errors import DamagedSegmentError, StorageError, StorageFullError
from nsqclient.spark.segment import Rows, encode_segment
from nsqclient.spark.shards import shard_log as module
from nsqclient.spark.shards.listing import list_segments
from nsqclient.spark.shards.log_reader import ShardedLog
from nsqclient.spark.shards.names import ShardKeys, parse_note
from nsqclient.spark.shards.shard_log import ShardLog, decode_note
from tests.spark import logs
from tests.spark.logs import message_id

NSQD = "node:4150"
KEYS = ShardKeys("t", "c", NSQD)


@pytest.fixture
def clock():
    """A clock that the test sets."""
    return [0.0]


@pytest.fixture
def log(store, clock):
    def start():
        found = ShardLog(store, KEYS, settle_time=60.0, clock=lambda: clock[0])
        found.open()
        return found
    return start


def put(log, numbers, conn="x-0", window=2500):
    return logs.put(log, NSQD, numbers, conn, window)


def bodies(store):
    """Every body on the storage, in the order of the log."""
    return logs.numbers_of(store, NSQD)


def numbers(store):
    return [one.number for one in list_segments(store, KEYS)]


def noted(store):
    """The number, serial and ids of the only note."""
    [found] = store.list_objects(KEYS.of("notes"))
    return parse_note(found.key), decode_note("", "", store.read(found.key))


def test_segments_follow_each_other(store, log):
    one = log()
    put(one, [1, 2, 3])
    put(one, [4])
    assert [one[:2] for one in list_segments(store, KEYS)] == [(1, 0), (2, 3)]
    assert bodies(store) == [1, 2, 3, 4] and one.waiting[0] == 4
    assert store.list_objects("t/c/shards")[0].key == KEYS.shard


def test_a_new_writer_goes_on_and_knows_what_is_perhaps_not_finished(store, log):
    """The last writer died without a note, so every message may be redelivered."""
    put(log(), [1, 2, 3])
    second = log()
    assert put(second, [2, 4, 3]) == [4]
    assert bodies(store) == [1, 2, 3, 4] and second.copies_dropped == 2


def test_of_two_writers_at_once_each_knows_what_the_other_has_written(store, log):
    """A writer whose create loses reads the winner's ids, and drops copies."""
    first, second = log(), log()
    assert put(first, [1, 2]) == [1, 2]
    assert put(second, [2, 3]) == [3]
    assert put(first, [3, 4]) == [4]
    assert put(first, [5]) == [5]
    assert put(second, [4, 5]) == []
    assert bodies(store) == [1, 2, 3, 4, 5] and numbers(store) == [1, 2, 3, 4]
    assert (first.lost_creates, second.lost_creates) == (1, 2)


def test_a_writer_that_is_far_behind_reads_everything_first(store, log):
    slow, fast = log(), log()
    for number in range(20):
        put(fast, [number])
    assert put(slow, [*range(15, 25)]) == [*range(20, 25)]
    assert bodies(store) == [*range(25)]
    sizes = [found.size for found in store.list_objects(KEYS.of("segments"))]
    assert slow.waiting == (25, sum(sizes))


def test_a_create_whose_outcome_is_unknown_is_found_out_by_the_next(store, log, monkeypatch):
    """The object was stored and the answer lost: FIN is not sent, and copies are dropped later."""
    one = log()
    create = store.create

    def lose(key, data):
        create(key, data)
        raise StorageError(store.url, "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", lose)
        with pytest.raises(StorageError, match="no answer"):
            put(one, [1, 2])
    assert put(one, [2, 3, 1]) == [3]
    assert bodies(store) == [1, 2, 3]


def test_a_storage_that_does_not_answer_is_tried_again(store, log, monkeypatch, caplog):
    """The owner pauses, as with a full disk."""
    one = log()
    caplog.set_level("INFO", "nsqclient.spark")
    fail = Mock(side_effect=StorageError(store.url, "503"))
    with monkeypatch.context() as patch:
        patch.setattr(store, "create", fail)
        patch.setattr(store, "list_objects", fail)
        with pytest.raises(StorageError) as failed:
            put(one, [1])
        one.report_full(failed.value)
        one.report_full(failed.value)
        assert one.full_error
        with pytest.raises(StorageError):
            one.retry()
    one.retry()
    assert one.full_error is None
    one.retry()
    assert caplog.text.count("until that works") == caplog.text.count("takes segments again") == 1
    assert put(one, [1]) == [1]


def test_a_note_names_what_is_perhaps_not_finished(store, log):
    """After a note, a new writer needs no segment before it."""
    one = log()
    put(one, [1, 2])
    one.refused(NSQD, message_id(2))
    one.conn_closed("x-0", clean=True)
    one.close()
    assert noted(store) == ((1, 1), {NSQD: [message_id(2)]})
    assert put(log(), [2, 3]) == [3]


def test_a_note_leaves_out_what_is_still_pending(store, log, clock):
    """On an open connection, later messages or time will prove the FIN."""
    one = log()
    put(one, [1])
    assert not one.write_note(1)
    put(one, range(2, 10), window=2)
    assert one.write_note(1)  # the connection has had more than two windows since
    assert noted(store)[0] == (1, 1)
    clock[0] = 100.0
    assert one.write_note(1) and not one.write_note(1)
    assert noted(store) == ((2, 1), {})  # the older one is deleted


def test_news_about_noted_segments_make_another_note(store, log, clock):
    """Here a FIN is refused late."""
    one = log()
    put(one, [1])
    clock[0] = 100.0
    one.write_note(1)
    one.refused(NSQD, message_id(1))
    assert one.write_note()
    assert noted(store) == ((1, 2), {NSQD: [message_id(1)]})


def test_a_note_that_another_writer_has_written_is_not_replaced(store, log, clock):
    """Both notes are true; the later one gets a higher serial."""
    first, second = log(), log()
    put(first, [1])
    put(second, [2])
    put(first, [3])
    clock[0] = 100.0
    first.conn_closed("x-0", clean=True)
    second.conn_closed("x-0", clean=True)
    put(second, [])
    assert first.write_note(1)
    assert parse_note(store.list_objects(KEYS.of("notes"))[-1].key) == (3, 1)
    second._catch_up()
    assert second.write_note(1)
    assert parse_note(store.list_objects(KEYS.of("notes"))[-1].key) == (3, 2)


def test_a_note_that_cannot_be_written_is_written_later(store, log, clock, monkeypatch):
    one = log()
    put(one, [1])
    one.conn_closed("x-0", clean=False)
    with monkeypatch.context() as patch:
        patch.setattr(store, "create", Mock(side_effect=StorageError(store.url, "503")))
        with pytest.raises(StorageError):
            one.write_note(1)
        one.close()
    assert one.write_note()
    assert noted(store)[1] == {NSQD: [message_id(1)]}


def retain(store, number):
    """Delete segments as Spark's driver does after a commit."""
    log = ShardedLog(store, "t", "c", retention_seconds=0.0)
    log.mark_committed({NSQD: number})
    log._note_commits()
    log.delete_expired(float("inf"))
    log.stop()


def test_what_no_note_has_is_not_deleted(store, log, clock):
    """A new writer needs its ids, even if Spark has committed it."""
    one = log()
    put(one, [1])
    put(one, [2])
    put(one, [3])
    retain(store, 3)
    assert numbers(store) == [1, 2, 3]
    clock[0] = 100.0
    one.write_note(1)
    retain(store, 3)
    assert numbers(store) == [3]  # the newest one stays
    one.look_for_commits()
    assert one.waiting == (0, 0)


@pytest.mark.parametrize("is_proven", [False, True])
def test_a_full_disk_frees_what_is_committed_only(store, log, monkeypatch, caplog, is_proven):
    """Even before the retention is over and FINs are proven. The error has the missing size."""
    one = log()
    for number in range(5):
        put(one, [number])
    if is_proven:
        one.conn_closed("x-0", clean=True)
        one.write_note(1)
    store.create(KEYS.commit(3), b"")
    missing = [700]
    monkeypatch.setattr(type(store), "missing_space", lambda self, size: missing[0])
    with pytest.raises(StorageFullError) as failed:
        put(one, [5])
    one.report_full(failed.value)
    for _ in range(4):
        one.retry()  # the deleted segments are not enough
    assert numbers(store) == [4, 5] and one.full_error
    assert "700 B more are needed" in caplog.text
    assert "committed segments up to 3" in caplog.text and "cannot be replayed" in caplog.text
    missing[0] = 0
    one.retry()
    assert one.full_error is None and put(one, [2, 4, 5]) == [5]
    # Copies of proven messages are not expected; ids of deleted segments are not known.
    assert put(log(), [1, 3, 6]) == ([1, 6] if is_proven else [6])


@pytest.fixture
def six(store, log):
    """A writer of segments 1 to 6 with 100 messages each, five of them committed; the sizes."""
    one = log()
    for number in range(6):
        put(one, range(100 * number, 100 * number + 100))
    store.create(KEYS.commit(5), b"")
    return one, [segment.size for segment in list_segments(store, KEYS)]


def test_a_full_disk_frees_the_older_half_of_what_is_committed(store, log, six, monkeypatch):
    """A note about every segment would list the messages of two windows, and not fit."""
    one, sizes = six
    create = store.create

    def missing(size):
        return max(0, sum(one.size for one in list_segments(store, KEYS)) - sum(sizes[1:]))

    def fill(key, data):
        if "notes" in key and len(data) > 8000:  # of more than 400 messages
            raise StorageFullError(store.url, "no space left", len(data))
        return create(key, data)

    monkeypatch.setattr(store, "missing_space", missing)
    monkeypatch.setattr(store, "create", fill)
    one.report_full(StorageFullError(store.url, "no space left", sizes[0]))
    one.retry()
    assert numbers(store) == [4, 5, 6] and one.full_error is None
    assert put(log(), [99, 100, 599, 600]) == [600]


def test_a_full_disk_frees_space_for_the_note_that_frees_more(store, log, six, monkeypatch):
    """The note about all segments to delete does not fit, so the oldest are deleted first."""
    one, sizes = six
    create = store.create

    def used():
        return sum(found.size for found in store.list_objects(""))

    most = used() + 3000  # a note of 100 messages has 2000 bytes

    def fill(key, data):
        if used() + len(data) > most:
            raise StorageFullError(store.url, "no space left", len(data))
        return create(key, data)

    monkeypatch.setattr(store, "missing_space", lambda size: max(0, used() + size - most))
    monkeypatch.setattr(store, "create", fill)
    one.report_full(StorageFullError(store.url, "no space left", sizes[0]))
    one.retry()
    assert numbers(store) == [4, 5, 6] and one.full_error is None
    assert put(log(), [99, 100, 599, 600]) == [600]


@pytest.fixture
def awake(store, log, clock):
    """A writer of segments 1 to 5, all committed. Only the last segment still exists."""
    one = log()
    for number in range(5):
        put(one, [number])
    clock[0] = 100.0
    one.write_note(1)
    retain(store, 5)
    assert numbers(store) == [5]
    return one


def test_a_writer_that_wakes_up_under_the_floor_stores_again(store, log, request):
    """Its create succeeds with the number of a deleted segment, which nobody would read."""
    asleep, awake = log(), request.getfixturevalue("awake")
    assert put(asleep, [9]) == [9]
    assert numbers(store) == [5, 6] and bodies(store) == [4, 9]
    assert put(awake, [9, 10]) == [10]


def test_a_new_writer_passes_over_what_a_dead_one_left_under_the_floor(store, log, awake):
    """The dead writer did not check the floor after its create."""
    data = bytes(encode_segment("t", "c", [
        (NSQD, Rows.of([(1, 1, message_id(1), b"x")]))]))
    store.create(KEYS.segment(1, 0), data)
    assert put(log(), [5]) == [5] and numbers(store) == [1, 5, 6]


def test_a_log_with_a_gap_is_an_error_that_names_it(store, log):
    one = log()
    for number in range(3):
        put(one, [number])
    store.delete([KEYS.segment(2, 1)])
    with pytest.raises(StorageError, match="has a gap") as failed:
        log()
    assert "\n" not in str(failed.value) and KEYS.folder in str(failed.value)


def test_a_recovery_begins_again_when_something_is_deleted_meanwhile(store, log, monkeypatch):
    """A newer note replaces the note while it is read."""
    one = log()
    put(one, [1])
    one.conn_closed("x-0", clean=True)
    one.write_note(1)
    read = store.read
    failed = []

    def lose(key):
        if not failed:
            failed.append(key)
            raise module.ObjectNotFoundError(store.url, key)
        return read(key)

    monkeypatch.setattr(store, "read", lose)
    assert put(log(), [2]) == [2] and failed


def test_a_damaged_note_is_an_error():
    with pytest.raises(DamagedSegmentError, match="note k is damaged"):
        decode_note("u", "k", b"[]")
