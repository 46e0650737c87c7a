"""``Monitor``: waiting for a change, and what an exception from a signal handler leaves behind."""

import pytest

from nsqclient.runtime.monitor import Monitor, Waiter
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
    wait_until(lambda: len(box.monitor._armed) == 5, 30)
    box.set(3)
    for thread in threads:
        thread.join()
    assert seen == [3] * 5
    assert not box.monitor._armed


@pytest.mark.parametrize("timeout", [None, 3e10])
def test_a_wait_without_limit_ends_with_the_change(timeout):
    """As one of a thousand years, for which the system cannot wait."""
    box, seen = Box(), []
    threads = start_threads(1, lambda: seen.append(box.get(timeout)))
    wait_until(lambda: box.monitor._armed, 30)
    box.set(1)
    threads[0].join()
    assert seen == [1]


def test_a_second_notification_before_the_thread_has_run_does_no_harm():
    """A thread that was woken twice at once sleeps again only when nothing has changed."""
    monitor = Monitor()
    waiter = monitor.waiter()
    with monitor.lock:
        waiter.arm()
        monitor.notify_all()
        monitor.notify_all()
    waiter.sleep(None)
    waiter.sleep(0.01)
    waiter.close()
    assert not monitor._armed


def test_an_interrupted_wait_leaves_the_lock_free():
    for function in (Monitor.wait_for, Waiter.sleep, Waiter.__init__, Monitor.waiter):
        def work():
            box = Box()
            try:
                box.get(timeout=0.001)
            except KeyboardInterrupt:
                pass

            def check():
                with box.monitor.lock:
                    assert not box.monitor._armed

            return check

        assert interrupt_everywhere(function, work) > 0


def test_an_interrupted_notification_never_leaves_a_change_that_nobody_was_woken_for():
    """Wherever Ctrl-C comes in a change, a waiter is woken or the state is as it was."""
    for function in (Box.set, Monitor.notify_all):
        def work():
            box = Box()
            waiters = [box.monitor.waiter() for _ in range(3)]
            for waiter in waiters:
                waiter.arm()
            try:
                box.set(1)
            except KeyboardInterrupt:
                pass

            def check():
                with box.monitor.lock:
                    assert not box.value or not any(one._baton.locked() for one in waiters)

            return check

        assert interrupt_everywhere(function, work) > 0
