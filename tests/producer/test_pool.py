"""The connections of publishes to one nsqd: the stack, the turns, and the timer."""

import contextlib
import gc
import math
import threading
import time
import unittest.mock
from types import SimpleNamespace

import pytest

from nsqclient.config import Config
from nsqclient.connection.blocking import STORED, BlockingConnection
from nsqclient.errors import ConnectionLostError, ReentrantCallError
from nsqclient.producer.pool import ConnectionPool, _Waiter
from nsqclient.producer.publisher import Publisher
from nsqclient.producer.stats import Statistics
from tests.support.faults.interrupts import Interruption
from tests.support.waiting import wait_until

WAIT = 20.0


class Conn:
    """A connection that lies in a pool."""

    def __init__(self, used_at=None):
        used_at = time.monotonic() + WAIT if used_at is None else used_at  # fresh by default
        self.used_at = self.opened_at = self.heard_at = used_at
        self.suspected_at = 0.0
        self.is_plain = self.is_ended = False
        self.is_closed = self.is_dead = self.unread = False
        self.cuts = []

    def begin(self, command, read_answer):
        pass

    def wait(self, until, data):
        return STORED

    def look(self):
        self.heard_at, self.unread = time.monotonic(), False
        return not self.is_dead

    def has_unread(self):
        return self.unread

    def cut(self, error):
        self.cuts.append(str(error))

    def close(self):
        self.is_closed = True

    def __del__(self):
        self.close()


@pytest.fixture
def world():
    """A pool; ``wanted`` counts how often it asked for dials."""
    wanted = []
    pool = ConnectionPool(
        BlockingConnection, "n:1",
        Config(max_connections=2, idle_timeout=60.0, heartbeat_interval=10.0),
        lambda: wanted.append(pool.missing()))
    return SimpleNamespace(pool=pool, wanted=wanted)


def wait(pool, timeout=WAIT, is_reentrant=False):
    return pool.wait(time.monotonic() + timeout, lambda: is_reentrant)


def put_back(pool, conn):
    """Put a connection back, as a publish does."""
    pool.idle.append(conn)
    pool.serve()


def waiting(pool, taken, name):
    """Start a thread that waits for a connection; return when it does."""
    count = len(pool.waiting)
    thread = threading.Thread(target=lambda: taken.append((name, wait(pool))))
    thread.start()
    wait_until(lambda: len(pool.waiting) == count + 1)
    return thread


def add(pool, *conns):
    for conn in conns:
        pool.add(conn)
    return conns


def test_the_connection_that_was_put_back_last_is_taken_first(world):
    """So that those beyond the need lie idle."""
    first, second = add(world.pool, Conn(), Conn())
    assert world.pool.take(0.0) is second and world.pool.take(0.0) is first
    assert world.pool.take(0.0) is None


def test_a_dead_connection_is_not_taken(world):
    alive, dead = add(world.pool, Conn(0.0), Conn(0.0))
    dead.is_dead = True
    assert world.pool.take(time.monotonic()) is alive
    assert dead.is_closed and world.pool.connections() == [alive]


def test_publishes_that_wait_get_connections_in_their_order(world):
    add(world.pool, Conn())
    taken = world.pool.take(0.0)
    found = []
    threads = [waiting(world.pool, found, name) for name in "abc"]
    wait_until(lambda: world.wanted[:3] == [1, 1, 1])  # of two there is one
    for count, name in enumerate("abc", 1):
        put_back(world.pool, taken)
        wait_until(lambda count=count: len(found) == count)
        assert found[-1][0] == name
        taken = found[-1][1]
    for thread in threads:
        thread.join()


def test_each_idle_connection_is_for_the_publish_that_has_waited_longest(world):
    """Nobody overtakes it before its thread has woken."""
    first, second = _Waiter(), _Waiter()
    world.pool.waiting.extend([first, second])
    add(world.pool, Conn())
    assert world.pool._has_turn(first) and not world.pool._has_turn(second)
    assert not first.wake.locked() and second.wake.locked()
    assert world.pool.take(0.0) is None


def test_publishes_that_wait_can_be_sent_elsewhere(world):
    found = []
    thread = waiting(world.pool, found, "a")
    world.pool.release_waiters()
    thread.join()
    assert found == [("a", None)] and not world.pool.waiting


def test_the_deadline_ends_the_wait(world):
    assert wait(world.pool, 0.01) is None
    assert not world.pool.waiting


def test_a_publish_does_not_wait_for_its_own_thread(world):
    add(world.pool, Conn(), Conn())
    held = [world.pool.take(0.0), world.pool.take(0.0)]
    with pytest.raises(ReentrantCallError):
        wait(world.pool, is_reentrant=True)
    assert not world.pool.waiting and len(held) == 2


def test_a_publish_in_a_signal_handler_waits_for_a_connection_that_may_be_dialed(world):
    (conn,) = add(world.pool, Conn())
    held = world.pool.take(0.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(wait(world.pool, is_reentrant=True)))
    thread.start()
    wait_until(lambda: world.wanted)
    other = Conn()
    world.pool.add(other)
    thread.join()
    assert found == [other] and held is conn


def interrupt_each_point(world, work):
    """Interrupt ``work`` at each point; return the places at which it was interrupted."""
    number, places = 0, []
    gc.collect()
    gc.freeze()  # what other tests have left would be looked through at each point
    while True:
        interruption = Interruption(number)
        errors = []
        try:
            with interruption:
                work()
        except KeyboardInterrupt as exc:
            errors.append(exc)  # and its frames
        if not interruption.has_come:
            return places
        places.append(interruption.place)
        gc.collect()
        assert len(world.pool.connections()) == len(world.pool.idle), (interruption.place, errors)
        assert not world.pool.waiting, interruption.place
        while len(world.pool.connections()) < 1:
            world.pool.add(Conn())
        number += 1


def test_an_interrupted_publish_costs_the_pool_nothing(world):
    """Not even while the program keeps the exception; a wait is forgotten, too."""
    add(world.pool, Conn())
    nodes = SimpleNamespace(
        wait_for_connection=lambda node, pool, until, interval, is_reentrant: world.pool.wait(
            until, is_reentrant))
    publisher = Publisher(nodes, True, Statistics())
    node = SimpleNamespace(pool=world.pool, address="n:1", responses=0, failures=0)

    def publish():
        assert publisher.attempt(node, b"x", time.monotonic() + WAIT, WAIT) == STORED

    assert len(interrupt_each_point(world, publish)) > 5

    def publish_after_waiting():
        with unittest.mock.patch.object(world.pool, "take", lambda now, in_turn=False: (
                ConnectionPool.take(world.pool, now, True) if in_turn else None)):
            publish()

    assert len(interrupt_each_point(world, publish_after_waiting)) > 20


def test_an_interrupted_publish_closes_a_connection_that_is_lost(world, monkeypatch):
    error = ConnectionLostError("n:1", "lost")
    monkeypatch.setattr(Conn, "wait", unittest.mock.Mock(side_effect=error))
    monkeypatch.setattr(Conn, "look", lambda self: False)
    publisher = Publisher(
        SimpleNamespace(on_lost=lambda node, error, is_new: None), True, Statistics())
    node = SimpleNamespace(pool=world.pool, address="n:1", responses=0)
    world.pool.add(Conn())

    def publish():
        assert publisher.attempt(node, b"x", time.monotonic() + WAIT, WAIT).error is error

    assert len(interrupt_each_point(world, publish)) > 4
    world.pool.add(Conn())
    assert len(interrupt_each_point(world, lambda: world.pool.take(math.inf))) > 2


def test_an_interrupted_publish_does_not_lose_the_turn_of_another(world):
    """Wherever the exception comes while it puts its connection back."""
    add(world.pool, Conn())
    number, is_over = 0, False
    while not is_over:
        conn, found = world.pool.take(0.0), []
        thread = waiting(world.pool, found, "a")
        interruption = Interruption(number)
        began = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt), interruption:
            put_back(world.pool, conn)
        thread.join()
        assert found == [("a", conn)], interruption.place
        assert time.monotonic() - began < WAIT / 2, interruption.place
        world.pool.idle.append(conn)
        number, is_over = number + 1, not interruption.has_come
    assert number > 3


def test_what_an_interrupted_thread_lost_is_not_counted(world):
    """A connection that the thread lost frees its place, and another one is dialed."""
    add(world.pool, Conn(), Conn())
    world.pool.idle.pop()
    gc.collect()
    assert len(world.pool.connections()) == 1
    found = []
    world.pool.idle.pop()
    gc.collect()
    thread = waiting(world.pool, found, "a")
    assert world.wanted == [1]
    world.pool.add(Conn())
    thread.join()


def test_one_connection_is_dialed_beside_those_that_are_doubted(world):
    """Also above the limit; not another one once that was dialed."""
    conns = add(world.pool, Conn(), Conn())
    assert world.pool.missing() == 0
    for conn in conns:
        conn.suspected_at = time.monotonic() + WAIT
    assert world.pool.missing() == 1
    world.pool.dialed_at = time.monotonic() + 2 * WAIT
    assert world.pool.missing() == 0


def test_doubts_buy_no_more_than_one_connection_and_only_for_a_while(world):
    """The doubted ones may answer after all: ``max_connections`` is 2."""
    conns = add(world.pool, *[Conn(100.0) for _ in range(3)])
    for conn in conns:
        conn.heard_at, conn.suspected_at = 105.0, time.monotonic() + WAIT
    assert world.pool.missing() == 0
    world.pool.check(105.0)
    assert len(world.pool.connections()) == 2


def test_idle_connections_that_were_not_heard_of_are_closed_together(world):
    old, young = add(world.pool, Conn(50.0), Conn(150.0))
    world.pool.close_idle(100.0)
    assert old.is_closed and not young.is_closed
    world.pool.close_idle()
    assert young.is_closed


def test_a_failed_connection_makes_room_for_a_publish_that_waits(world):
    add(world.pool, Conn(), Conn())
    held = [world.pool.take(0.0), world.pool.take(0.0)]
    found = []
    thread = waiting(world.pool, found, "a")
    wait_until(lambda: thread.is_alive() and world.pool.waiting)
    world.pool.drop(held[0])
    wait_until(lambda: 1 in world.wanted)
    world.pool.add(Conn())
    thread.join()


def test_idle_connections_answer_heartbeats_and_dead_ones_are_closed(world):
    now = time.monotonic()
    beating, dead = add(world.pool, Conn(now - 5), Conn(now - 5))
    beating.unread = dead.unread = dead.is_dead = True
    world.pool.check(now)
    assert world.pool.connections() == [beating] and not beating.unread and dead.is_closed


def test_a_publish_that_came_during_a_check_gets_the_connection(world):
    now = time.monotonic()
    conn, = add(world.pool, Conn(now - 5))
    conn.unread = True
    found = []
    publish = threading.Thread(target=lambda: found.append(wait(world.pool)))

    def look():
        conn.look = lambda: True
        publish.start()
        wait_until(lambda: world.pool.waiting)
        return True

    conn.look = look
    world.pool._wake = unittest.mock.Mock(side_effect=world.pool._wake)
    world.pool.check(now)
    assert world.pool._wake.called
    publish.join()
    assert found == [conn]


def test_an_idle_connection_that_is_silent_for_two_heartbeats_is_closed(world):
    """The network to it is gone."""
    now = time.monotonic()
    silent, fresh = add(world.pool, Conn(now - 20), Conn(now - 19))
    silent.look = lambda: True
    world.pool.check(now)
    assert silent.is_closed and not fresh.is_closed


def test_connections_that_were_not_used_for_long_are_closed_but_one(world):
    conns = add(world.pool, *[Conn(100.0) for _ in range(2)])
    for conn in conns:
        conn.heard_at = 160.0
    world.pool.check(159.0)
    assert len(world.pool.connections()) == 2
    world.pool.check(160.0)
    assert len(world.pool.connections()) == 1


def test_close_cuts_what_is_in_use_and_closes_what_is_idle_or_put_back_later(world):
    used, idle = add(world.pool, Conn(), Conn())
    world.pool.idle.remove(used)
    world.pool.close()
    assert used.cuts and not used.is_closed and idle.is_closed
    put_back(world.pool, used)
    assert used.is_closed
