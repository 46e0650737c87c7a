"""The producer's timer thread: it comes when it is woken, whatever its checks raise."""

import ctypes
import time

import pytest

from nsqclient.producer.timer import PoolTimer
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until

WAIT = 20.0


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_timer_comes_when_it_is_woken_and_ends(error):
    times = []

    def check(now):
        times.append(now)
        if len(times) == 1:
            raise error
        return now + 1000.0

    timer = PoolTimer(check)
    timer.start()
    wait_until(lambda: times)
    timer.wake()
    wait_until(lambda: len(times) > 1)
    assert timer.stop(Deadline(WAIT))


def test_an_exception_of_a_time_limit_does_not_end_the_timer():
    times = []

    def check(now):
        times.append(now)
        return now + 0.01

    timer = PoolTimer(check)
    timer.start()
    wait_until(lambda: times)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(timer._thread.ident), ctypes.py_object(MemoryError))
    began = time.monotonic()
    wait_until(lambda: times[-1] > began + 0.5)
    assert timer.stop(Deadline(WAIT))
