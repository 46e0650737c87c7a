"""DialQueue by value: which address is dialed next."""

import pytest

from nsqclient.runtime.dialing import DialQueue, Standing, standing_of

UNTRIED, LOST, FAILING, FAILED = (
    Standing.UNTRIED, Standing.LOST, Standing.FAILING, Standing.FAILED,
)


def make(limit=16, sources="ab", **wanted):
    """A queue; ``wanted`` has lists of addresses by their sources, all untried."""
    queue = DialQueue(limit, sources)
    for names, addresses in wanted.items():
        for address in addresses:
            queue.put(address, names, UNTRIED)
    return queue


def drain(queue, now=0.0):
    """Take all that may be dialed now."""
    taken = []
    while (key := queue.take(now)) is not None:
        taken.append(key)
    return taken


@pytest.mark.parametrize(("has_worked", "failures", "standing"), [
    (True, 0, LOST), (True, 3, FAILING), (False, 0, UNTRIED), (False, 1, FAILED),
])
def test_an_address_is_classified_by_its_dials(has_worked, failures, standing):
    assert standing_of(has_worked, failures) is standing


def test_sources_take_turns():
    queue = make(a=range(1000), b=["x", "y"])
    assert drain(queue)[:4] == [0, "x", 1, "y"]


def test_a_source_never_uses_the_share_of_another():
    """So what another one names later is dialed at once, whatever hangs."""
    queue = make(a=range(1000))
    assert len(drain(queue)) == 8
    queue.put("x", "b", UNTRIED)
    assert drain(queue) == ["x"]


@pytest.mark.parametrize("limit, sources, share", [(16, "abc", 5), (4, "abcdefgh", 1)])
def test_shares_are_equal_and_at_least_one(limit, sources, share):
    assert len(drain(make(limit, sources, a=range(100)))) == share


def test_no_more_than_the_limit_are_under_way():
    """Where there are more sources than dials, they still take turns."""
    queue = make(2, "abc", a=[1, 2], b=[3, 4], c=[5, 6])
    assert drain(queue) == [1, 3]
    queue.finish(1)
    assert drain(queue) == [5]
    assert queue.under_way == 2


def test_an_address_of_two_sources_is_dialed_once():
    queue = make(4, ab=["x"], a=range(10), b="yz")
    assert drain(queue) == ["x", "y", 0, "z"]


@pytest.mark.parametrize(("standings", "order"), [
    ([FAILED, UNTRIED, LOST], [LOST, UNTRIED, FAILED]),
    ([UNTRIED, FAILING, FAILED], [FAILING, UNTRIED, FAILED]),
    ([UNTRIED, FAILING, LOST], [LOST, FAILING, UNTRIED]),
])
def test_those_that_worked_come_first_and_those_that_never_did_last(standings, order):
    queue = make(sources="a")
    for number, standing in enumerate(standings):
        queue.put((number, standing), "a", standing)
    assert [standing for _, standing in drain(queue)] == order


def test_those_that_fail_again_and_again_leave_every_second_dial_to_the_others():
    queue = make(6, "a", a="xyz")
    for number in range(10):
        queue.put(number, "a", FAILING)
    assert drain(queue) == [0, "x", 1, "y", 2, "z"]


def test_nothing_is_dialed_before_its_time():
    """What waits takes no place of the others; the address that has waited longest comes first."""
    queue = make(a=["x"])
    for key, retry_at in (("last", 30.0), ("late", 10.0), ("later", 20.0)):
        queue.put(key, "a", FAILED, retry_at)
    assert drain(queue, 9.9) == ["x"]
    assert queue.next_due() == 10.0 and queue.count_ready(9.9) == 0
    assert drain(queue, 10.0) == ["late"] and queue.next_due() == 20.0
    assert drain(queue, 30.0) == ["later", "last"] and queue.next_due() is None


def test_what_no_source_names_is_not_dialed():
    queue = make(a=["x", "y"])
    queue.put("z", "a", FAILED, retry_at=5.0)
    assert queue.count_ready(0.0) == 2
    for key in ("x", "z", "never put"):
        queue.discard(key)
    assert "x" not in queue and "z" not in queue and queue.next_due() is None
    assert drain(queue, 9.0) == ["y"]


def test_an_address_keeps_its_place_when_another_source_names_it_too():
    """And loses it only with the last source that named it so early."""
    queue = make(a=["x", "y"], b=range(3))
    assert queue.count_ready(0.0) == 5
    queue.set_sources("x", "ab")
    queue.set_sources("y", "b")
    queue.set_sources("unknown", "b")
    assert drain(queue) == ["x", 0, 1, 2, "y"]


def test_an_address_that_waits_may_get_another_source():
    """Its dial counts for the new one."""
    queue = make(2, "ab", b=["y", "z"])
    queue.put("x", "a", FAILED, retry_at=5.0)
    queue.set_sources("x", "b")
    assert drain(queue, 6.0) == ["y"]


def test_of_two_calls_the_last_counts():
    queue = make(a=["x"])
    assert queue.count_ready(0.0) == 1
    queue.put("x", "b", FAILED, retry_at=5.0)
    assert drain(queue, 1.0) == [] and queue.next_due() == 5.0
    queue.put("x", "a", UNTRIED)
    assert drain(queue, 1.0) == ["x"] and queue.next_due() is None


def test_what_is_being_dialed_is_queued_again_when_that_has_ended():
    """Never twice at the same time."""
    queue = make(a=["x"])
    assert drain(queue) == ["x"] and "x" in queue
    queue.put("x", "a", FAILED, retry_at=1.0)
    queue.set_sources("x", "b")
    assert drain(queue, 2.0) == []
    queue.finish("x")
    assert queue.next_due() == 1.0 and drain(queue, 2.0) == ["x"]


def test_what_is_being_dialed_may_be_dropped():
    queue = make(a=["x"])
    drain(queue)
    queue.put("x", "a", FAILED)
    queue.discard("x")
    queue.finish("x")
    assert "x" not in queue and drain(queue, 9.0) == []
