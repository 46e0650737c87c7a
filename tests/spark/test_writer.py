"""The writer splits, stores, finishes and requeues segments."""

from unittest.mock import Mock

import pytest

from nsqclient.consumer.bulk import BulkSubscription
from nsqclient.errors import ClosedError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import LogError, StorageError
from nsqclient.spark import ingest as module
from nsqclient.spark.ingest import MessageBuffer, Quota, Writer, split_by_rows, split_segment
from nsqclient.spark.segment import ROW_BYTES, Rows
from nsqclient.spark.shards.names import ShardKeys
from nsqclient.spark.shards.shard_log import End, ShardLog
from nsqclient.spark.storage import open_store
from tests.support.consumer_context import make_context


class FakeSub:
    def __init__(self, key="0", address="n:1", closed=False):
        self.key, self.address, self.window, self.is_lost = key, address, 10, False
        self.source = address
        self.finished, self.requeued_unstarted, self.closed = [], [], closed

    def finish_ids(self, ids):
        if self.closed:
            raise ClosedError("closed")
        self.finished += ids

    def requeue_ids(self, ids):
        self.requeued_unstarted += ids


@pytest.fixture
def log(tmp_path):
    found = ShardLog(open_store(str(tmp_path / "log")), ShardKeys("t", "c", "n:1"))
    found.open()
    return found


def message(number, attempts=1, size=1):
    return (number, attempts, b"%016x" % number, b"x" * size)


def rows(*numbers):
    return Rows.of([message(number) for number in numbers])


def plain(batches):
    """Each message, after the key of its connection."""
    found = []
    for sub, rows in batches:
        ends = [size - ROW_BYTES for size in rows.sizes]
        bodies = [rows.bodies[sum(ends[:n]):sum(ends[:n + 1])] for n in range(len(rows))]
        times = memoryview(rows.timestamps).cast("q")
        found += [(sub.key, one) for one in zip(times, rows.attempts, rows.ids, bodies)]
    return found


def run(log, *segments, limit=None):
    """Pass segments to a writer, one after the other; return the errors that it reports."""
    failures = []
    buffer = MessageBuffer(roll_interval=60.0)
    writer = Writer(buffer, log, lambda rows: None, failures.append, limit and Quota(limit))
    for sub, messages in segments:
        assert buffer.add(sub, messages)
    buffer.close()
    writer.start()
    assert writer.finish(Deadline(10))
    return failures


def test_messages_are_stored_then_finished(log):
    one, two = FakeSub("1"), FakeSub("2")
    assert run(log, (one, [message(1), message(2)]), (two, [message(3, attempts=2)])) == []
    assert log.end == End(1, 3) and log.redelivered == 1
    assert one.finished == [message(1)[2], message(2)[2]] and two.finished == [message(3)[2]]


def test_copies_are_finished_and_not_stored(log):
    one, two = FakeSub("1"), FakeSub("2")
    run(log, (one, [message(1), message(2)]), (two, [message(2), message(3)]))
    assert log.end == End(1, 3)
    assert two.finished == [message(2)[2], message(3)[2]]


def test_messages_that_cannot_be_stored_are_requeued(log):
    sub = FakeSub()
    log.append = Mock(side_effect=LogError("/x", "damaged"))
    [failure] = run(log, (sub, [message(1), message(2)]))
    assert sub.finished == [] and sub.requeued_unstarted == [message(1)[2], message(2)[2]]
    assert str(failure) == "log /x: damaged"


def test_a_bug_of_the_writer_is_reported_and_finishes_nothing(log):
    sub = FakeSub()
    log.append = Mock(side_effect=ZeroDivisionError)
    [failure] = run(log, (sub, [message(1)]))
    assert "ZeroDivisionError" in str(failure) and sub.finished == []


def test_a_full_disk_is_no_failure(log, monkeypatch):
    """Messages that cannot be stored are requeued, and later ones are stored."""
    error = StorageError("/x", "disk full")
    one, two = FakeSub("1"), FakeSub("2")
    buffer, stored, failures = MessageBuffer(roll_interval=60.0), [], []
    writer = Writer(buffer, log, stored.append, failures.append, Quota(1))
    with monkeypatch.context() as patch:
        patch.setattr(log, "append", Mock(side_effect=error))
        writer._handle([(one, rows(1))])
    writer._handle([(two, rows(2))])
    assert one.requeued_unstarted == [message(1)[2]] and two.finished == [message(2)[2]]
    assert stored == [0, 1] and failures == [] and log.full_error is error


def test_a_fin_that_cannot_be_sent_leaves_doubt(log):
    """The message is stored, and nsqd will send a copy."""
    log.conn_closed = Mock()
    sub = FakeSub(closed=True)
    assert run(log, (sub, [message(1)])) == []
    assert log.end == End(1, 1)
    log.conn_closed.assert_called_once_with(sub, clean=False)


def test_messages_of_a_lost_connection_are_left_to_nsqd(log):
    """nsqd delivers them again, so the log does not record them."""
    sub = FakeSub()
    sub.is_lost = True
    run(log, (sub, [message(1)]))
    assert log.end == End() and sub.finished == []


def test_messages_over_the_limit_go_back_after_the_owner_was_called(log):
    """It stops the flow, or nsqd would send them again at once."""
    events, quota, sub = [], Quota(1), FakeSub()
    sub.requeue_ids = lambda ids: events.append(f"{len(ids)} requeued")
    writer = Writer(MessageBuffer(60.0), log, lambda rows: events.append(quota.left), print, quota)
    writer._handle([(sub, rows(1, 2, 3))])
    assert events == [0, "2 requeued", 0] and len(sub.finished) == 1


def test_messages_over_the_limit_are_requeued(log):
    one, two = FakeSub("1"), FakeSub("2")
    run(log, (one, [message(1), message(2)]), (two, [message(3), message(4)]), limit=3)
    assert log.end == End(1, 3) and two.requeued_unstarted == [message(4)[2]]


def test_a_closed_buffer_accepts_nothing():
    buffer = MessageBuffer(1.0)
    buffer.close()
    assert buffer.add(FakeSub(), [message(1)]) is False
    assert buffer.take(0.0) == ([], True)


def test_a_segment_is_due_when_it_is_large_or_old():
    """When it has half a window of messages, or after the roll interval."""
    buffer, sub = MessageBuffer(roll_interval=3600.0), FakeSub()
    buffer.set_segment_rows(2)
    buffer.add(sub, [message(1)])
    assert buffer.take(0.0) == ([], False) and not buffer.is_idle
    buffer.add(sub, [message(2)])
    batches, is_last = buffer.take(0.0)
    assert (plain(batches), is_last) == ([("0", message(1)), ("0", message(2))], False)
    assert not buffer.is_idle
    assert buffer.take(0.0) == ([], False) and buffer.is_idle
    quick = MessageBuffer(roll_interval=0.0)
    quick.set_segment_rows(1000)
    quick.add(sub, [message(1)])
    assert plain(quick.take(1.0)[0]) == [("0", message(1))]


def test_many_bytes_make_a_segment_and_pause_the_flow(monkeypatch):
    """max_in_flight limits only the number of messages."""
    monkeypatch.setattr(module, "MOST_BYTES", 10 + ROW_BYTES)
    calls = []
    buffer, sub = MessageBuffer(3600.0, lambda: calls.append(buffer.is_full)), FakeSub()
    buffer.set_segment_rows(1000)
    buffer.add(sub, [message(1, size=10)])
    assert calls == [] and buffer.take(0.0) == ([], False)
    buffer.add(sub, [message(2)])
    buffer.add(sub, [message(3)])
    assert calls == [True]
    assert len(plain(buffer.take(0.0)[0])) == 3
    assert calls == [True, False]


def test_close_wait_does_not_prove_a_fin_that_came_later(monkeypatch):
    """The disk was slow, and stop() could not wait for it."""
    sub = BulkSubscription("127.0.0.1:1", make_context(), None)
    monkeypatch.setattr(sub.conn, "send", lambda queue, **options: True)
    sub.finish_ids([b"1"])
    sub.post_cls()
    sub.was_drained = True
    assert sub.is_proven
    sub.finish_ids([b"2"])
    assert not sub.is_proven


@pytest.mark.parametrize("limits, sizes", [
    *(({"most_bytes": most * (ROW_BYTES + 1)}, sizes)
      for most, sizes in ((1000, [5]), (3, [3, 2]), (2, [2, 2, 1]), (0, [1] * 5))),
    *(({"most_rows": most}, sizes)
      for most, sizes in ((5, [5]), (4, [4, 1]), (3, [3, 2]), (1, [1] * 5))),
])
def test_large_segments_are_split(limits, sizes):
    """A segment fits into a task by its bytes, and into maxMessagesPerTrigger by its rows."""
    one, two = FakeSub("1"), FakeSub("2")
    batches = [(one, rows(1, 2)), (one, rows(3)), (two, rows(4, 5))]
    parts = split_segment(batches, **limits)
    assert [sum(len(found) for _, found in part) for part in parts] == sizes
    assert [one for part in parts for one in plain(part)] == [
        *(("1", message(number)) for number in (1, 2, 3)),
        *(("2", message(number)) for number in (4, 5))]


def test_a_split_keeps_the_order():
    one, two = FakeSub("1"), FakeSub("2")
    segment = [(one, rows(1, 2)), (two, rows(3))]
    whole = plain(segment)
    for most in (0, 1, 2, 9):
        first, rest = map(plain, split_by_rows(segment, most))
        assert first + rest == whole and len(first) == min(most, 3)
