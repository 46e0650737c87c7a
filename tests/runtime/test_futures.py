"""``PlainFuture``: as a Future of the standard library, and never locked for ever."""

import asyncio
import logging
import threading
from concurrent import futures
from concurrent.futures import CancelledError, Future, InvalidStateError

import pytest

from nsqclient.runtime.futures import PlainFuture, succeed_all
from nsqclient.runtime.threads import LibraryThread
from tests.support.faults.interrupts import Interruption
from tests.support.waiting import wait_until

#: What does not touch the condition, or is called by nothing that is left.
_UNUSED = {
    "__class_getitem__", "__repr__", "_Future__get_result", "_get_snapshot", "_invoke_callbacks",
}


def running():
    """A Future whose work has begun."""
    future = PlainFuture()
    assert future.set_running_or_notify_cancel()
    return future


def in_thread(work):
    """Run it in a thread; return where its outcome will be."""
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
        if callable(value) and getattr(PlainFuture, name) is value
    }
    assert inherited <= _UNUSED


def test_waiting_for_a_result():
    future = running()
    seen = [in_thread(lambda: future.result(30)) for _ in range(3)]
    forever = in_thread(future.result)
    wait_until(lambda: len(future._watch().batons) == 4)
    assert future.running() and not future.done()
    future.set_result(5)
    wait_until(lambda: all(seen) and forever)
    assert seen == [[5]] * 3 and forever == [5]
    assert future.done() and not future.running() and future.exception() is None
    assert "finished" in repr(future)


def test_waiting_for_an_exception():
    future, error = running(), KeyError("x")
    seen = in_thread(lambda: future.exception(30))
    future.set_exception(error)
    wait_until(lambda: seen)
    assert seen == [error]
    with pytest.raises(KeyError):
        future.result(0)


def test_no_outcome_in_time():
    """TimeoutError of concurrent.futures, and the Future is as before."""
    future = running()
    for ask in (future.result, future.exception):
        with pytest.raises(futures.TimeoutError):
            ask(0.01)
        with pytest.raises(futures.TimeoutError):
            ask(-1)
    assert not future._watch().batons


def test_a_second_outcome_is_an_error():
    future = running()
    future.set_result(1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)
    assert future.result(0) == 1
    with pytest.raises(RuntimeError):
        future.set_running_or_notify_cancel()


def test_cancelled_before_it_began():
    future, called = PlainFuture(), []
    future.add_done_callback(called.append)
    seen = in_thread(lambda: future.result(30))
    wait_until(lambda: future._watch().batons)
    assert future.cancel() and future.cancel() and future.cancelled() and future.done()
    wait_until(lambda: seen)
    assert isinstance(seen[0], CancelledError) and called == [future]
    assert not future.set_running_or_notify_cancel()
    assert futures.wait([future], 0).done == {future}


def test_not_cancelled_once_it_runs():
    future = running()
    assert not future.cancel()
    succeed_all([future])
    assert not future.cancel() and future.result(0) is None


def test_callbacks_are_called_once_in_order(caplog):
    """Those that were added before the outcome and those after it; what one raises is logged."""
    future, called = running(), []
    future.add_done_callback(lambda future: called.append(1))
    future.add_done_callback(lambda future: 1 / 0)
    future.add_done_callback(lambda future: called.append(2))
    with caplog.at_level(logging.ERROR):
        succeed_all([future])
    future.add_done_callback(lambda future: called.append(3))
    assert called == [1, 2, 3] and "a callback of" in caplog.text


def test_concurrent_futures_can_wait_for_it():
    done, later, failing = running(), running(), running()
    succeed_all([done])
    assert futures.wait([done, later], 30, futures.FIRST_COMPLETED).done == {done}
    seen = in_thread(lambda: futures.wait([done, later, failing], 30))
    wait_until(lambda: later._watch().waiters)
    succeed_all([later])
    failing.set_exception(KeyError())
    wait_until(lambda: seen)
    assert seen[0].done == {done, later, failing}


def test_concurrent_futures_as_completed():
    every = [running() for _ in range(20)] + [PlainFuture()]
    seen = in_thread(lambda: list(futures.as_completed(every, 30)))
    wait_until(lambda: every[-1]._watch().waiters)
    every[-1].cancel()
    for future in every[:-1]:
        succeed_all([future])
    every[-1].set_running_or_notify_cancel()
    wait_until(lambda: seen)
    assert sorted(map(id, seen[0])) == sorted(map(id, every))


def test_asyncio_awaits_it():
    future = running()

    async def main():
        asyncio.get_running_loop().call_soon(future.set_result, 3)
        return await asyncio.wrap_future(future)

    assert asyncio.run(main()) == 3


def test_an_outcome_does_not_wait_for_a_thread_that_looks():
    """The holder of the lock of wait() sees the outcome when it releases the lock."""
    future = running()
    with future._condition:
        future.set_result(1)
        assert future.result(0) == 1 and future._state == "RUNNING"
    assert future._state == "FINISHED"


@pytest.mark.parametrize("call", [
    lambda future: future.result(0.001), lambda future: future.exception(0.001),
    lambda future: future.add_done_callback(print), lambda future: futures.wait([future], 0.001),
    lambda future: list(futures.as_completed([future], 0.001)),
    lambda future: future.running(),
])
def test_an_interrupted_call_never_blocks_the_thread_that_sets_the_outcome(call):
    def is_wanted(code):
        return "nsqclient/runtime" in code.co_filename or "concurrent" in code.co_filename

    number = 0
    while True:
        future = running()
        interruption = Interruption(number, is_wanted)
        try:
            with interruption:
                call(future)
        except (KeyboardInterrupt, futures.TimeoutError):
            pass
        done = in_thread(lambda future=future: future.set_exception(ValueError()) or "done")
        wait_until(lambda done=done: done == ["done"], message=interruption.place)
        assert isinstance(future.exception(0), ValueError)
        if not interruption.has_come:
            break
        number += 1
    assert number > 0


def test_an_interrupt_in_a_callback_reaches_the_thread_that_added_it(caplog):
    """KeyboardInterrupt is for that thread; on a thread of the library it is logged."""
    def fail(future):
        raise KeyboardInterrupt

    done = PlainFuture()
    done.set_result(1)
    with pytest.raises(KeyboardInterrupt):
        done.add_done_callback(fail)
    later = PlainFuture()
    later.add_done_callback(fail)
    thread = LibraryThread(later.set_result, "nsq-x", (1,))
    thread.launch()
    thread.join()
    assert caplog.text.count("a callback of") == 1
