"""Bells: who sleeps is woken by a ring, by its time, or by the ticker; nothing is left behind."""

from __future__ import annotations

import os
import threading
import time

import pytest

from nsqclient.runtime import bell as module
from nsqclient.runtime.bell import Bell, Bells
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until

WAIT = 30.0


@pytest.fixture(params=["the best", "a lock"])
def bell(request):
    """One of each kind."""
    return Bell() if request.param == "a lock" else module._make()


@pytest.fixture
def bells(monkeypatch):
    """Bells that tick quickly, closed at the end."""
    monkeypatch.setattr(module, "TICK", 0.005)
    monkeypatch.setattr(module, "_IDLE", 2)
    bells = Bells()
    yield bells
    assert bells.close(Deadline(WAIT), False)


def tickers():
    """The threads that tick."""
    return [thread for thread in threading.enumerate() if thread.name == "nsq-ticker"]


def test_a_ring_that_nobody_waits_for_is_kept(bell):
    """And two of them are one."""
    bell.ring()
    bell.ring()
    bell.nap(WAIT)
    began = time.monotonic()
    bell.nap(0.01)
    assert time.monotonic() - began >= 0.009


def test_a_ring_ends_a_sleep(bell):
    """From another thread."""
    thread = threading.Thread(target=bell.nap, args=(WAIT,))
    thread.start()
    bell.ring()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_sleeper_is_woken_without_a_ring(bells):
    """So whoever sleeps can look at the time, on every kind of bell."""
    one = bells.take()
    one.sleep()
    Bell().sleep()
    bells.give(one)


def test_the_ticker_ends_when_no_bell_is_in_use(bells):
    """The descriptors are given back; the next use starts it again."""
    bells.give(bells.take())
    wait_until(lambda: not tickers())
    assert not bells._free
    one = bells.take()
    one.sleep()
    bells.give(one)


def test_who_takes_one_while_the_ticker_ends_gets_a_new_ticker(bells):
    """It was taken before the ticker said that it ends, and looked at that afterwards."""
    for _ in range(200):
        one = bells.take()
        one.sleep()
        bells.give(one)
        bells._hurry.set()


def test_close_waits_for_those_that_are_in_use(bells):
    """Who still sleeps is woken until it gives the bell back."""
    one = bells.take()
    assert not bells.close(Deadline(0.05), False)
    one.sleep()
    bells.give(one)
    assert bells.close(Deadline(WAIT), False)


def test_close_does_not_wait_for_one_that_got_lost(bells):
    """Ctrl-C came between its use and the note of that; a traceback may keep it."""
    lost = bells.take()
    assert bells.close(Deadline(WAIT), True) and not tickers()
    assert lost


def test_one_that_got_lost_is_forgotten(bells):
    """The ticker ends all the same."""
    bells.take()
    wait_until(lambda: not tickers())


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="has no eventfd")
def test_they_do_not_take_all_descriptors(bells, monkeypatch):
    """There is a most; those beyond are locks."""
    bells._most = 2
    taken = [bells.take() for _ in range(4)]
    assert [type(one) is Bell for one in taken] == [False, False, True, True]
    for one in taken:
        bells.give(one)


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="has no eventfd")
def test_a_forked_child_gives_them_back(bells):
    """Those in use too: their threads are not there any more."""
    used, free = bells.take(), bells.take()
    bells.give(free)
    numbers = [used._fd, free._fd]
    bells._free.append(bells._free.pop())
    bells.abandon()
    for number in numbers:
        with pytest.raises(OSError):
            os.fstat(number)
    bells.close(Deadline(WAIT), True)


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="has no eventfd")
def test_a_bell_gives_its_descriptor_back():
    """As soon as nobody can ring it any more."""
    one = module._make()
    number = one._fd
    ring = one.ring
    assert os.fstat(number)
    del one
    with pytest.raises(OSError):
        os.fstat(number)
    with pytest.raises(OSError):
        ring()  # what rings holds the bell, for this reason


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="has no eventfd")
def test_without_a_descriptor_it_is_a_lock(monkeypatch, bells):
    """EMFILE costs speed and nothing else; such bells need no ticker."""
    def refuse(*args):
        raise OSError(24, "Too many open files")

    before = len(tickers())
    monkeypatch.setattr(os, "eventfd", refuse)
    one = bells.take()
    assert type(one) is Bell and len(tickers()) == before
    bells.give(one)


def test_without_a_thread_it_is_a_lock(monkeypatch, bells):
    """The system has none left."""
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    one = bells.take()
    assert type(one) is Bell
    bells.give(one)


def test_where_threads_are_something_else_it_is_a_lock(monkeypatch):
    """gevent: to wait in the kernel would stop all of them."""
    class GreenLock:
        def __init__(self):
            self.acquired = 0

        def acquire(self, *args, **kwargs):
            self.acquired += 1
            return True

    monkeypatch.setattr(threading, "Lock", GreenLock)
    assert type(module._make()) is Bell
