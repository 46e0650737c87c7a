"""What the writer does with lots: split, cut, store, finish, give back."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from nsqclient.config import Config  # noqa: E402 - needs pyarrow
from nsqclient.errors import ClosedError  # noqa: E402 - needs pyarrow
from nsqclient.runtime.deadline import Deadline  # noqa: E402 - needs pyarrow
from nsqclient.spark.errors import SpoolError  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest import gathering  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.gathering import Gatherer, cut  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.subscription import BulkSubscription  # noqa: E402 - needs pyarrow
from nsqclient.spark.ingest.writer import Writer, split  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.known_ids import KnownIds  # noqa: E402 - needs pyarrow
from nsqclient.spark.spool.spool import Verdict  # noqa: E402 - needs pyarrow


class FakeSub:
    """A connection that notes what it was told."""

    def __init__(self, key="0", address="n:1", closed=False):
        self.key, self.address, self.window, self.is_lost = key, address, 10, False
        self.finished, self.handed_back, self.closed = [], [], closed

    def finish_ids(self, ids):
        """FIN."""
        if self.closed:
            raise ClosedError("closed")
        self.finished += ids

    def hand_back_ids(self, ids):
        """REQ 0."""
        self.handed_back += ids


class FakeSink:
    """A spool in memory."""

    def __init__(self, error=None):
        self.known, self.rows, self.closed, self.refusals = KnownIds(), [], [], []
        self.redelivered, self.error = 0, error

    def write_tmp(self, data):
        """A name is enough."""
        if self.error is not None:
            raise self.error
        return "tmp"

    def append(self, tmp, rows, claims, copies=()):
        """Note what became durable."""
        found = self.known.find_copies(claims)
        if found is not None:
            return Verdict(0, found)
        if rows:
            self.rows.append(rows)
            self.known.add(claims, len(self.rows), 0.0)
        self.known.add_copies(copies, 0.0)
        return Verdict(len(self.rows), None)

    def count_redelivered(self, number):
        """For the progress."""
        self.redelivered += number

    def refused(self, nsqd, message_id):
        """Of FIN."""
        self.refusals.append(message_id)

    def conn_closed(self, conn, clean):
        """The end of a connection."""
        self.closed.append((conn, clean))


def message(number, attempts=1, size=1):
    """A raw message."""
    return (number, attempts, b"%016x" % number, b"x" * size)


def run(sink, *lots, limit=None):
    """Give lots to a writer, one after the other; return the errors it told."""
    failures = []
    gatherer = Gatherer(roll_interval=60.0)
    stored = []
    writer = Writer("t", "c", gatherer, sink, stored.append, failures.append, limit)
    for sub, messages in lots:
        assert gatherer.add(sub, messages)
    gatherer.close()
    writer.start()
    assert writer.finish(Deadline(10))
    return failures


def test_messages_are_stored_then_finished():
    """All that came together is one segment."""
    sink, one, two = FakeSink(), FakeSub("1"), FakeSub("2")
    assert run(sink, (one, [message(1), message(2)]), (two, [message(3, attempts=2)])) == []
    assert sink.rows == [3] and sink.redelivered == 1
    assert one.finished == [message(1)[2], message(2)[2]] and two.finished == [message(3)[2]]


def test_copies_are_finished_and_not_stored():
    """Of a message that came twice, on two connections of one nsqd."""
    sink, one, two = FakeSink(), FakeSub("1"), FakeSub("2")
    run(sink, (one, [message(1), message(2)]), (two, [message(2), message(3)]))
    assert sink.rows == [3]
    assert two.finished == [message(2)[2], message(3)[2]]


def test_what_cannot_be_stored_goes_back():
    """And nothing is finished, now or later."""
    sink, sub = FakeSink(SpoolError("/x", "disk full")), FakeSub()
    failures = run(sink, (sub, [message(1), message(2)]))
    assert sub.finished == [] and sub.handed_back == [message(1)[2], message(2)[2]]
    assert [str(error) for error in failures] == ["spool /x: disk full"]


def test_a_bug_gives_messages_back_too():
    """The writer lives on, and tells."""
    sink, sub = FakeSink(ZeroDivisionError()), FakeSub()
    failures = run(sink, (sub, [message(1)]))
    assert "ZeroDivisionError" in str(failures[0]) and sub.finished == []


def test_a_fin_that_cannot_be_sent_leaves_doubt():
    """The message is durable, and nsqd will send a copy."""
    sink, sub = FakeSink(), FakeSub(closed=True)
    assert run(sink, (sub, [message(1)])) == []
    assert sink.rows == [1] and sink.closed == [("0", False)]


def test_messages_of_a_lost_connection_are_left_to_nsqd():
    """They come again; nothing is known of them here."""
    sink, sub = FakeSink(), FakeSub()
    sub.is_lost = True
    run(sink, (sub, [message(1)]))
    assert sink.rows == [] and sub.finished == []


def test_over_the_limit_messages_go_back():
    """A drain takes maxMessages exactly."""
    sink, one, two = FakeSink(), FakeSub("1"), FakeSub("2")
    run(sink, (one, [message(1), message(2)]), (two, [message(3), message(4)]), limit=3)
    assert sink.rows == [3] and two.handed_back == [message(4)[2]]


def test_a_closed_gatherer_takes_nothing():
    """What comes then is given back by the reader."""
    gatherer = Gatherer(1.0)
    gatherer.close()
    assert gatherer.add(FakeSub(), [message(1)]) is False
    assert gatherer.take(0.0) == ([], True)


def test_a_lot_is_due_when_it_is_large_or_old():
    """Half a window at once, or what there is after the roll interval."""
    gatherer, sub = Gatherer(roll_interval=3600.0), FakeSub()
    gatherer.set_lot_size(2)
    gatherer.add(sub, [message(1)])
    assert gatherer.take(0.0) == ([], False) and not gatherer.is_idle
    gatherer.add(sub, [message(2)])
    assert gatherer.take(0.0) == ([(sub, [message(1), message(2)])], False)
    assert not gatherer.is_idle
    assert gatherer.take(0.0) == ([], False) and gatherer.is_idle
    quick = Gatherer(roll_interval=0.0)
    quick.set_lot_size(1000)
    quick.add(sub, [message(1)])
    assert quick.take(1.0)[0] == [(sub, [message(1)])]


def test_many_bytes_are_a_lot_too_and_stop_the_flow(monkeypatch):
    """max_in_flight counts messages; these may be large."""
    monkeypatch.setattr(gathering, "MOST_BYTES", 10)
    told = []
    gatherer, sub = Gatherer(3600.0, lambda: told.append(gatherer.is_crowded)), FakeSub()
    gatherer.set_lot_size(1000)
    gatherer.add(sub, [message(1, size=10)])
    assert told == [] and gatherer.take(0.0) == ([], False)
    gatherer.add(sub, [message(2)])
    gatherer.add(sub, [message(3)])
    assert told == [True]
    assert [len(messages) for _, messages in gatherer.take(0.0)[0]] == [3]
    assert told == [True, False]


def test_close_wait_does_not_prove_a_fin_that_came_later(monkeypatch):
    """The disk was slow, and the stop could not wait for it."""
    sub = BulkSubscription("0", "127.0.0.1:1", "t", "c", Config(), None)
    monkeypatch.setattr(sub.conn, "send", lambda queue: None)
    sub.finish_ids([b"1"])
    sub.send_cls()
    sub.was_drained = True
    assert sub.is_proven
    sub.finish_ids([b"2"])
    assert not sub.is_proven


@pytest.mark.parametrize("most, sizes", [(1000, [5]), (3, [3, 2]), (2, [2, 2, 1]), (0, [1] * 5)])
def test_large_lots_are_cut(most, sizes):
    """Arrow cannot hold more than 2 GiB in a column."""
    one, two = FakeSub("1"), FakeSub("2")
    lot = [(one, [message(1), message(2), message(3)]), (two, [message(4), message(5)])]
    parts = cut(lot, most)
    assert [sum(len(messages) for _, messages in part) for part in parts] == sizes
    assert [m for part in parts for _, messages in part for m in messages] == [
        message(number) for number in range(1, 6)]


def test_splitting_keeps_order():
    """First those that are taken."""
    one, two = FakeSub("1"), FakeSub("2")
    lot = [(one, [message(1), message(2)]), (two, [message(3)])]
    assert split(lot, 1) == ([(one, [message(1)])], [(one, [message(2)]), (two, [message(3)])])
    assert split(lot, 9) == (lot, [])
    assert split(lot, 0) == ([], lot)
