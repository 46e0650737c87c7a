"""Which messages are known as durable, and when they are forgotten."""

import pytest

from nsqclient.spark import known_ids
from nsqclient.spark.known_ids import Claim, KnownIds


def ids(first: int, count: int) -> list[bytes]:
    return [b"%016x" % number for number in range(first, first + count)]


def claim(first: int, count: int, conn: str = "a", nsqd: str = "n:1", window: int = 10) -> Claim:
    return Claim(nsqd, conn, window, ids(first, count))


def store(known: KnownIds, claims: list[Claim], number: int, now: float) -> None:
    new = known.check(claims)
    assert new is not None
    known.add(new, number, now)


def find(known: KnownIds, claims: list[Claim]) -> list[list[int]] | None:
    """Positions of copies; None if ``check`` finds no copies."""
    if known.check(claims) is not None:
        assert not any(known.find_copies(claims))
        return None
    return known.find_copies(claims)


@pytest.fixture
def known() -> KnownIds:
    """Five messages of segment 1, received on connection ``a``."""
    known = KnownIds()
    assert find(known, [claim(0, 5)]) is None
    store(known, [claim(0, 5)], 1, 0.0)
    return known


def test_added_messages_are_recognised(known):
    assert find(known, [claim(3, 4, conn="b")]) == [[0, 1]]


def test_another_nsqd_has_ids_of_its_own(known):
    assert find(known, [claim(0, 5, nsqd="n:2", conn="b")]) is None


def test_a_message_that_comes_twice_in_one_segment_counts_once():
    known = KnownIds()
    twice = claim(0, 2)._replace(ids=ids(0, 2) + ids(1, 1))
    assert find(known, [twice, claim(0, 1, conn="b")]) == [[2], [0]]


def test_fins_before_the_last_window_are_proven():
    """nsqd has at most RDY messages in flight."""
    known = KnownIds()
    for first in range(0, 100, 10):
        store(known, [claim(first, 10)], 1 + first // 10, 0.0)
    assert len(known) == 20
    assert not known.is_held(8) and known.is_held(9) and known.is_held(10)


def test_proven_messages_are_remembered_all_the_same():
    """After a stall, copies arrive before nsqd's refusal. They are not kept on disk."""
    known = KnownIds()
    for number in range(5):
        store(known, [claim(10 * number, 10)], 1 + number, 0.0)
    assert find(known, [claim(0, 10, conn="b")]) == [list(range(10))]
    known.leave_segments([1, 2])
    assert not known.saved_grew and known.take_saved() == {}
    assert find(known, [claim(0, 10, conn="b")]) == [list(range(10))]


def test_only_the_last_proven_messages_are_remembered(monkeypatch):
    monkeypatch.setattr(known_ids, "MOST_PROVEN", 30)
    known = KnownIds()
    for number in range(10):
        store(known, [claim(10 * number, 10)], 1 + number, 0.0)
    assert find(known, [claim(40, 10, conn="b")]) is None
    assert find(known, [claim(50, 10, conn="b")]) == [list(range(10))]
    # Their segments may be there for long, uncommitted.
    assert [len(known._by_number[number][0].ids) for number in (5, 6)] == [0, 10]


def test_an_id_that_has_moved_to_a_later_batch_is_not_forgotten_with_the_first(monkeypatch):
    monkeypatch.setattr(known_ids, "MOST_PROVEN", 10)
    for move in (lambda one: one.doubt("n:1", ids(3, 1)),
                 lambda one: one.add_copies([Claim("n:1", "b", 10, ids(3, 1) * 2)], 1.0)):
        known = KnownIds()
        store(known, [claim(0, 10)], 1, 0.0)
        move(known)
        known.closed("a", clean=True)
        store(known, [claim(10, 10, conn="c")], 2, 0.0)
        known.closed("c", clean=True)
        assert find(known, [claim(0, 10, conn="d")]) == [[3]]
        known.closed("b", clean=True)
        store(known, [claim(20, 10, conn="e")], 3, 0.0)
        known.closed("e", clean=True)


def test_a_copy_of_a_proven_message_is_saved_when_its_segment_is_gone(known):
    """A crash before its FIN is proven then causes no duplicate."""
    known.closed("a", clean=True)
    known.leave_segments([1])
    known.add_copies([claim(0, 5, conn="b")], 1.0)
    assert known.saved_grew and known.take_saved() == {"n:1": ids(0, 5)}


def test_fins_of_a_quiet_connection_are_proven_by_time():
    """An open connection has received heartbeats since."""
    known = KnownIds()
    store(known, [claim(0, 5)], 1, 10.0)
    store(known, [claim(5, 5)], 2, 20.0)
    known.settle(before=15.0)
    assert len(known) == 5
    assert not known.is_held(1) and known.is_held(2)


def test_a_lost_connection_leaves_doubt(known):
    """The last FINs may be lost, whatever their number and age."""
    known.closed("a", clean=False)
    known.settle(before=999.0)
    assert find(known, [claim(0, 5, conn="b")]) == [[0, 1, 2, 3, 4]]
    assert not known.is_held(1)


def test_a_clean_end_proves_every_fin(known):
    """CLOSE_WAIT follows them, so no id is saved with the segment."""
    known.closed("a", clean=True)
    assert len(known) == 0
    known.leave_segments([1])
    assert not known.saved_grew and known.take_saved() == {}


def test_a_refused_fin_is_remembered_though_the_connection_ends_well(known):
    known.doubt("n:1", ids(2, 1))
    known.closed("a", clean=True)
    assert len(known) == 1
    known.leave_segments([1])
    assert known.take_saved() == {"n:1": ids(2, 1)}


def test_a_refused_fin_of_a_forgotten_message_is_remembered():
    """The segment may be deleted, so the id must be saved."""
    known = KnownIds()
    known.doubt("n:1", ids(7, 1))
    assert known.saved_grew
    assert known.take_saved() == {"n:1": ids(7, 1)}


def test_a_copy_that_is_finished_is_pending_again(known):
    """Its FIN may be lost too. Once it is proven, the id is not doubtful."""
    known.closed("a", clean=False)
    known.add_copies([claim(0, 5, conn="b")], 1.0)
    assert known.is_held(1)
    assert find(known, [claim(0, 5, conn="c")]) is not None
    known.closed("b", clean=True)
    assert len(known) == 0


def test_unproven_ids_of_a_deleted_segment_are_saved(known):
    store(known, [claim(5, 5, conn="b")], 1, 0.0)
    known.closed("a", clean=False)
    known.closed("b", clean=True)
    known.leave_segments([1])
    assert known.saved_grew
    assert known.take_saved() == {"n:1": ids(0, 5)}
    assert not known.saved_grew


def test_saved_ids_are_known_after_a_restart():
    known = KnownIds()
    known.load({"n:1": ids(0, 3)})
    assert not known.saved_grew
    assert find(known, [claim(2, 2)]) == [[0]]


def test_ids_of_a_segment_after_a_crash_are_in_doubt_until_their_copies_came():
    """It is unknown whether their FINs were sent."""
    known = KnownIds()
    known.doubt("n:1", ids(0, 3), number=4)
    assert not known.saved_grew
    assert find(known, [claim(0, 1)]) == [[0]]
    known.leave_segments([4])
    assert known.take_saved() == {"n:1": ids(0, 3)}


def test_what_an_earlier_run_has_finished_is_recognised_and_not_saved():
    """A copy is unlikely."""
    known = KnownIds()
    known.remember("a:1", [b"1", b"2"])
    assert find(known, [Claim("a:1", "x", 10, [b"2", b"3"])]) == [[0]]
    assert len(known) == 0 and known.take_saved() == {}
