"""Messages on their way, and who waits for their outcome."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, wait

import pytest

from nsqclient.errors import ClosedError, PublishUnknown
from nsqclient.publishing.items import Item
from nsqclient.runtime import futures
from tests.support.processes import in_child


def future(delay_ms=None):
    """A message that a Future stands for."""
    return Item("t", b"x", delay_ms, 0.0, 1.0)


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_good_outcome(asked_before):
    """A Future is done with None, whether or not somebody asked before."""
    item = future()
    called = []
    if asked_before:
        item.add_done_callback(called.append)
    assert item.start() and not item.done()
    item.succeed()
    assert item.done() and item.result(0) is None and item.exception(0) is None
    assert called == ([item] if asked_before else [])


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_bad_outcome(asked_before):
    """A Future raises what went wrong; the first outcome stays."""
    item = future()
    assert not (asked_before and item.running())
    assert item.fail(PublishUnknown("first"))
    assert not item.fail(PublishUnknown("second"))
    with pytest.raises(PublishUnknown, match="first"):
        item.result(0)


def test_cancelled_before_it_is_sent():
    """A cancelled message is not sent, and has no other outcome."""
    item = future()
    assert item.cancel()
    assert not item.start() and not item.fail(PublishUnknown("late"))
    with pytest.raises(CancelledError):
        item.result(0)


def test_not_cancelled_once_it_is_sent():
    """What nsqd may have cannot be taken back."""
    item = future()
    assert item.start() and not item.cancel() and item.start()


def test_a_waiter_is_woken():
    """concurrent.futures.wait() returns with the outcome."""
    item = future()
    item.start()
    thread = threading.Thread(target=item.succeed)
    thread.start()
    assert wait([item], timeout=10).done == {item}
    thread.join()


def test_a_deferred_message_travels_alone():
    """A delay needs a command of its own."""
    assert future(delay_ms=1).alone and not future().alone


def test_threads_that_ask_at_once_share_one_lock():
    """Whoever asks first makes what all of them use."""
    item = future()
    barrier = threading.Barrier(4)
    seen = []

    def ask():
        barrier.wait(10)
        seen.append(item._condition._lock)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1


def test_abandoned_in_a_child():
    """A pending message is the parent's: the child hears so; an outcome that is there stays."""
    pending, stored = future(), future()
    stored.start()
    stored.succeed()
    pending._condition.acquire()  # as a thread would that does not exist in the child
    for item in (pending, stored):
        item.abandon()
    assert isinstance(pending.exception(0), ClosedError)
    assert stored.result(0) is None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_another_thread_settles_a_message():
    """The lock that all messages share is a new one in the child."""
    def work():
        item = future()
        assert item.start()
        item.succeed()

    with futures._quick:
        assert in_child(work) == 0
