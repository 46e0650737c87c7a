"""Messages under way, and the callers that wait for their outcome; no caller locks it for ever."""

import asyncio
import logging
import threading
from concurrent import futures
from concurrent.futures import CancelledError, Future, InvalidStateError

import pytest

from nsqclient.errors import ClosedError, PublishUnknownError
from nsqclient.producer import futures as module
from nsqclient.producer.futures import (
    PublishFuture, UnretrievedErrors, start_all, succeed_all,
)
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import Interruption
from tests.support.processes import in_child
from tests.support.waiting import wait_until

#: What does not touch the condition, or is called by nothing that is left.
_UNUSED = {
    "__class_getitem__", "__repr__", "_Future__get_result", "_get_snapshot", "_invoke_callbacks",
    "set_running_or_notify_cancel",
}


def future(delay_ms=None):
    """A message that a Future stands for."""
    return PublishFuture("t", b"x", delay_ms, 0.0, 1.0)


def running():
    """A Future whose work has begun."""
    item = future()
    assert start_all([item]) == [item]
    return item


def in_thread(work):
    """Run it in a thread; return the list that receives its outcome."""
    seen = []

    def run():
        try:
            seen.append(work())
        except BaseException as exc:
            seen.append(exc)

    threading.Thread(target=run).start()
    return seen


def test_it_has_every_method_of_a_future():
    """Nothing of the standard library's is left that would use its condition."""
    inherited = {
        name for name, value in vars(Future).items()
        if callable(value) and getattr(PublishFuture, name) is value
    }
    assert inherited <= _UNUSED


def test_waiting_for_a_result():
    item = running()
    seen = [in_thread(lambda: item.result(30)) for _ in range(3)]
    forever = in_thread(item.result)
    wait_until(lambda: len(item._callbacks or ()) == 4)
    assert item.running() and not item.done()
    item.set_result(5)
    wait_until(lambda: all(seen) and forever)
    assert seen == [[5]] * 3 and forever == [5]
    assert item.done() and not item.running() and item.exception() is None
    assert "finished" in repr(item)


def test_waiting_for_an_exception():
    item, error = running(), KeyError("x")
    seen = in_thread(lambda: item.exception(30))
    item.set_exception(error)
    wait_until(lambda: seen)
    assert seen == [error]
    with pytest.raises(KeyError):
        item.result(0)


def test_no_outcome_in_time():
    item = running()
    for ask in (item.result, item.exception):
        with pytest.raises(futures.TimeoutError):
            ask(0.01)
        with pytest.raises(futures.TimeoutError):
            ask(-1)
    assert not item._callbacks


def test_a_second_outcome_is_an_error():
    item = running()
    item.set_result(1)
    with pytest.raises(InvalidStateError):
        item.set_result(2)
    assert item.result(0) == 1
    assert start_all([item]) == []


def test_cancelled_before_it_began():
    item, called = future(), []
    item.add_done_callback(called.append)
    seen = in_thread(lambda: item.result(30))
    wait_until(lambda: item._callbacks)
    assert item.cancel() and item.cancel() and item.cancelled() and item.done()
    wait_until(lambda: seen)
    assert isinstance(seen[0], CancelledError) and called == [item]
    assert start_all([item]) == []
    assert futures.wait([item], 0).done == {item}


def test_not_cancelled_once_it_runs():
    item = running()
    assert not item.cancel()
    succeed_all([item])
    assert not item.cancel() and item.result(0) is None


def test_callbacks_are_called_once_in_order(caplog):
    item, called = running(), []
    item.add_done_callback(lambda item: called.append(1))
    item.add_done_callback(lambda item: 1 / 0)
    item.add_done_callback(lambda item: called.append(2))
    with caplog.at_level(logging.ERROR):
        succeed_all([item])
    item.add_done_callback(lambda item: called.append(3))
    assert called == [1, 2, 3] and "a callback of" in caplog.text


def test_concurrent_futures_can_wait_for_it():
    done, later, failing = running(), running(), running()
    succeed_all([done])
    assert futures.wait([done, later], 30, futures.FIRST_COMPLETED).done == {done}
    seen = in_thread(lambda: futures.wait([done, later, failing], 30))
    wait_until(lambda: later._listeners)
    succeed_all([later])
    failing.set_exception(KeyError())
    wait_until(lambda: seen)
    assert seen[0].done == {done, later, failing}


def test_concurrent_futures_as_completed():
    every = [running() for _ in range(20)] + [future()]
    seen = in_thread(lambda: list(futures.as_completed(every, 30)))
    wait_until(lambda: every[-1]._listeners)
    every[-1].cancel()
    for item in every[:-1]:
        succeed_all([item])
    start_all(every[-1:])
    wait_until(lambda: seen)
    assert sorted(map(id, seen[0])) == sorted(map(id, every))


def test_asyncio_awaits_it():
    item = running()

    async def main():
        asyncio.get_running_loop().call_soon(item.set_result, 3)
        return await asyncio.wrap_future(item)

    assert asyncio.run(main()) == 3


def test_an_outcome_does_not_wait_for_a_thread_that_looks():
    """The holder of the lock of wait() sees the outcome when it releases the lock."""
    item = running()
    with item._condition:
        item.set_result(1)
        assert item.result(0) == 1 and item._state == "RUNNING"
    assert item._state == "FINISHED"


@pytest.mark.parametrize("call", [
    lambda item: item.result(0.001), lambda item: item.exception(0.001),
    lambda item: item.add_done_callback(print), lambda item: futures.wait([item], 0.001),
    lambda item: list(futures.as_completed([item], 0.001)),
    lambda item: item.running(),
])
def test_an_interrupted_call_never_blocks_the_thread_that_sets_the_outcome(call):
    def is_wanted(code):
        return "nsqclient/" in code.co_filename or "concurrent" in code.co_filename

    number = 0
    while True:
        item = running()
        interruption = Interruption(number, is_wanted)
        try:
            with interruption:
                call(item)
        except (KeyboardInterrupt, futures.TimeoutError):
            pass
        done = in_thread(lambda item=item: item.set_exception(ValueError()) or "done")
        wait_until(lambda done=done: done == ["done"], message=interruption.place)
        assert isinstance(item.exception(0), ValueError)
        if not interruption.has_come:
            break
        number += 1
    assert number > 0


def test_an_interrupt_in_a_callback_reaches_the_thread_that_added_it(caplog):
    """KeyboardInterrupt is for that thread; on a thread of the library it is logged."""
    def fail(item):
        raise KeyboardInterrupt

    done = future()
    done.set_result(1)
    with pytest.raises(KeyboardInterrupt):
        done.add_done_callback(fail)
    later = future()
    later.add_done_callback(fail)
    thread = LibraryThread(later.set_result, "nsq-x", (1,))
    thread.launch()
    thread.join()
    assert caplog.text.count("a callback of") == 1


def test_of_several_threads_one_begins_a_message():
    items = [future() for _ in range(3)]
    assert start_all([items[0]]) == [items[0]]
    assert items[1].cancel()
    assert start_all(items) == [items[2]] and start_all(items) == []
    assert items[1].cancelled()


def test_an_outcome_that_is_there_stays():
    """close() may have been faster."""
    item, other = future(), future()
    other.add_done_callback(lambda _: None)
    for one in start_all([item, other]):
        one.fail(PublishUnknownError("closed"))
    succeed_all([item, other])
    assert isinstance(item.exception(0), PublishUnknownError)
    assert isinstance(other.exception(0), PublishUnknownError)


def test_abandoned_in_a_child():
    pending, stored = future(), future()
    start_all([stored])
    succeed_all([stored])
    pending._condition.acquire()  # as a thread would that does not exist in the child
    for item in (pending, stored):
        item.abandon()
    assert isinstance(pending.exception(0), ClosedError)
    assert stored.result(0) is None


def test_a_fork_while_another_thread_settles_a_message():
    """The lock that all messages share is a new one in the child."""
    def work():
        item = future()
        assert start_all([item]) == [item]
        succeed_all([item])

    with module._quick:
        assert in_child(work) == 0


@pytest.fixture
def failures():
    return UnretrievedErrors()


def fail(failures):
    """Return a Future that has failed."""
    item = future()
    start_all([item])
    assert item.fail(PublishUnknownError("lost"), failures.note)
    return item


def test_many_failures_are_one_warning(failures, caplog):
    """The count and the last error; the next warning waits, unless it is the end."""
    for _ in range(3):
        fail(failures)
    failures.report()
    fail(failures)
    failures.report()
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("3 ") and "lost" in caplog.messages[0]
    failures.report(at_once=True)
    assert caplog.messages[1].startswith("1 ")


@pytest.mark.parametrize("look", [
    lambda item: item.exception(0),
    lambda item: pytest.raises(PublishUnknownError, item.result, 0),
    lambda item: item.add_done_callback(lambda _: None),
])
def test_a_look_at_the_failure_prevents_the_warning(failures, caplog, look):
    caplog.set_level(logging.WARNING)
    look(fail(failures))
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_before_the_outcome_counts(failures, caplog):
    item = future()
    item.add_done_callback(lambda _: None)
    item.fail(PublishUnknownError("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_at_the_moment_of_the_failure_counts(failures, caplog):
    """A caller that begins to wait just when the Future fails needs no warning either."""
    class Late(PublishFuture):
        @property
        def _is_looked_at(self):
            PublishFuture._note_look(self)
            return False

        @_is_looked_at.setter
        def _is_looked_at(self, value):
            pass

    item = Late("t", b"x", None, 0.0, 1.0)
    item.fail(PublishUnknownError("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_an_await_says_what_to_write():
    async def wait():
        await PublishFuture("t", b"x", None, 0.0, 1.0)

    with pytest.raises(TypeError, match="write await asyncio.wrap_future"):
        asyncio.run(wait())
