"""``Monitor``: waiting for a change, and what an exception from a signal handler leaves behind."""

from queue import SimpleQueue

import pytest

from nsqclient.runtime.lock import Monitor
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.processes import start_threads
from tests.support.waiting import wait_until


class Box:
    """A value and the threads that wait for it."""

    def __init__(self):
        self.monitor = Monitor()
        self.value = 0

    def get(self, timeout=30):
        return self.monitor.wait_for(lambda: self.value, timeout)

    def set(self, value):
        with self.monitor.lock:
            self.monitor.notify_all()
            self.value = value


def test_the_last_result_is_returned_when_the_time_is_over():
    assert Box().get(timeout=0.01) == 0
    assert Box().get(timeout=-1) == 0


def test_every_waiting_thread_is_woken():
    box, seen = Box(), []
    threads = start_threads(5, lambda: seen.append(box.get()))
    wait_until(lambda: len(box.monitor._waiting) == 5, 30)
    box.set(3)
    for thread in threads:
        thread.join()
    assert seen == [3] * 5
    assert not box.monitor._waiting


@pytest.mark.parametrize("timeout", [None, 3e10])
def test_a_wait_without_limit_ends_with_the_change(timeout):
    """As one of a thousand years, for which the system cannot wait."""
    box, seen = Box(), []
    threads = start_threads(1, lambda: seen.append(box.get(timeout)))
    wait_until(lambda: box.monitor._waiting, 30)
    box.set(1)
    threads[0].join()
    assert seen == [1]


def test_an_interrupted_wait_leaves_the_lock_free():
    for function in (Monitor.wait_for,):
        def work():
            box = Box()
            try:
                box.get(timeout=0.001)
            except KeyboardInterrupt:
                pass

            def check():
                with box.monitor.lock:
                    assert not box.monitor._waiting

            return check

        assert interrupt_everywhere(function, work) > 0


def test_an_interrupted_change_never_leaves_a_waiter_that_nobody_woke():
    """Wherever Ctrl-C comes in a change, the waiters are woken or the state is as it was."""
    def work():
        box = Box()
        waiters = [SimpleQueue() for _ in range(3)]
        box.monitor._waiting.update(waiters)
        try:
            box.set(1)
        except KeyboardInterrupt:
            pass

        def check():
            with box.monitor.lock:
                assert not box.value or not any(waiter.empty() for waiter in waiters)

        return check

    assert interrupt_everywhere(Box.set, work) > 0
