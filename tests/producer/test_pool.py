"""The connections of publishes to one nsqd: the stack, the turns, and what the timer does."""

import gc
import threading
import time
from types import SimpleNamespace

import pytest

from nsqclient.config import Config
from nsqclient.producer.pool import ConnectionPool, PoolTimer
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until

WAIT = 20.0


class Conn:
    """A connection that lies in a pool."""

    def __init__(self, used_at=0.0):
        self.used_at = self.opened_at = self.heard_at = used_at
        self.pieces = 0
        self.exchange_under_way = {}
        self.is_closed = self.is_dead = self.unread = False
        self.cuts = []

    def look(self):
        self.heard_at, self.unread = time.monotonic(), False
        return not self.is_dead

    def exchanges(self):
        return [self.exchange_under_way] if "until" in self.exchange_under_way else []

    def has_unread(self):
        return self.unread

    def cut(self, error, exchange=None):
        if exchange is not None and exchange.pop("until", None) is None:
            return False
        self.cuts.append(str(error))
        return True

    def close(self):
        self.is_closed = True


@pytest.fixture
def world():
    """A pool; ``wanted`` counts how often it asked for dials."""
    wanted = []
    pool = ConnectionPool(
        "n:1", Config(max_connections=2, idle_timeout=60.0, heartbeat_interval=10.0),
        lambda: wanted.append(pool.missing()))
    return SimpleNamespace(pool=pool, wanted=wanted)


def waiting(pool, taken, name):
    """Start a thread that waits for a connection; return when it does."""
    count = len(pool._waiting)
    thread = threading.Thread(
        target=lambda: taken.append((name, pool.wait(time.monotonic() + WAIT))))
    thread.start()
    wait_until(lambda: len(pool._waiting) == count + 1)
    return thread


def test_the_connection_that_was_put_back_last_is_taken_first(world):
    """So that those beyond the need lie idle."""
    first, second = Conn(), Conn()
    for conn in (first, second):
        world.pool.add(conn)
    now = time.monotonic()
    assert world.pool.take(now) is second and world.pool.take(now) is first
    assert world.pool.take(now) is None


def test_a_dead_connection_is_not_taken(world):
    dead, alive = Conn(), Conn()
    dead.is_dead = True
    for conn in (alive, dead):
        world.pool.add(conn)
    assert world.pool.take(time.monotonic()) is alive
    assert dead.is_closed and world.pool.connections() == [alive]


def test_publishes_that_wait_get_connections_in_their_order(world):
    conn = Conn(time.monotonic() + WAIT)
    world.pool.add(conn)
    assert world.pool.take(time.monotonic()) is conn
    taken = []
    threads = [waiting(world.pool, taken, name) for name in "abc"]
    wait_until(lambda: world.wanted == [1, 1, 1])  # of two there is one
    for name in "abc":
        world.pool.put_back(conn)
        wait_until(lambda: taken and taken[-1] == (name, conn))
        assert world.pool.take(time.monotonic()) is None
    for thread in threads:
        thread.join()


def test_a_publish_looks_at_the_stack_once_more_before_it_waits(world):
    """A connection may have come back between its two looks."""
    conn = Conn(time.monotonic() + WAIT)
    world.pool.add(conn)
    assert world.pool.wait(time.monotonic() + WAIT) is conn


def test_publishes_that_wait_can_be_sent_elsewhere(world):
    taken = []
    thread = waiting(world.pool, taken, "a")
    world.pool.release_waiters()
    thread.join()
    assert taken == [("a", None)] and not world.pool.is_awaited


def test_the_deadline_ends_the_wait(world):
    assert world.pool.wait(time.monotonic() + 0.01) is None
    assert not world.pool.is_awaited


def test_what_an_interrupted_thread_lost_is_not_counted(world):
    """Its place is free: another one is dialed for it."""
    world.pool.add(Conn())
    world.pool.add(Conn())
    world.pool._idle.pop()
    gc.collect()
    assert len(world.pool.connections()) == 1
    taken = []
    world.pool._idle.pop()
    thread = waiting(world.pool, taken, "a")
    assert world.wanted == [1]
    world.pool.add(Conn(time.monotonic() + WAIT))
    thread.join()


def in_use(pool, began, until, pause=1.0, **state):
    """A connection on which a publish waits for its response."""
    conn = Conn(began)
    pool.add(conn)
    pool._idle.remove(conn)
    conn.exchange_under_way = {
        "began": began, "until": until, "check_at": began + pause, "pause": pause, "seen": 0}
    for name, value in state.items():
        setattr(conn, name, value)
    return conn


def test_an_overdue_publish_is_cut_at_its_deadline_and_not_before(world):
    conn = in_use(world.pool, 100.0, 105.0, pause=5.0)
    assert world.pool.check(104.5, False) == (105.0, False) and not conn.cuts
    world.pool.check(105.0, False)
    assert len(conn.cuts) == 1 and "no answer" in conn.cuts[0]


def test_a_stalled_nsqd_is_left_where_there_is_another(world):
    """It has answered nothing, to nobody, for as long as the publish may wait."""
    conn = in_use(world.pool, 100.0, 110.0)
    assert world.pool.check(101.0, False) == (102.0, False) and not conn.cuts
    assert world.pool.check(102.0, True)[1] and len(conn.cuts) == 1


def test_an_nsqd_that_answers_others_is_not_stalled(world):
    """It is slow with this one."""
    conn = in_use(world.pool, 100.0, 110.0)
    world.pool.responses += 1
    assert not world.pool.check(101.0, True)[1] and not conn.cuts
    conn.pieces += 1  # or takes a large command
    assert not world.pool.check(102.0, True)[1] and not conn.cuts
    assert world.pool.check(103.0, True)[1]


def test_input_that_nobody_has_read_yet_gives_time(world):
    """This process was suspended; its owner reads the answer next."""
    conn = in_use(world.pool, 100.0, 105.0, unread=True)
    due, _ = world.pool.check(200.0, True)
    assert due > 200.0 and not conn.cuts
    world.pool.check(due, True)
    assert len(conn.cuts) == 1


def test_silence_ends_a_publish_with_a_long_timeout(world):
    """Two heartbeats are missing."""
    conn = in_use(world.pool, 100.0, 1000.0)
    for now in range(101, 120):
        world.pool.check(float(now), False)
    assert not conn.cuts
    world.pool.check(120.0, False)
    assert len(conn.cuts) == 1 and "silent for 20 s" in conn.cuts[0]


def test_idle_connections_answer_heartbeats_and_dead_ones_are_closed(world):
    """The timer takes them out of the stack meanwhile."""
    now = time.monotonic()
    beating, dead = Conn(now - 5), Conn(now - 5)
    beating.unread = dead.unread = dead.is_dead = True
    for conn in (beating, dead):
        world.pool.add(conn)
    world.pool.check(now, False)
    assert world.pool.connections() == [beating] and not beating.unread and dead.is_closed


def test_an_idle_connection_that_is_silent_for_two_heartbeats_is_closed(world):
    """The network to it is gone."""
    now = time.monotonic()
    silent, fresh = Conn(now - 20), Conn(now - 19)
    silent.look = lambda: True
    for conn in (silent, fresh):
        world.pool.add(conn)
    world.pool.check(now, False)
    assert silent.is_closed and not fresh.is_closed


def test_connections_that_were_not_used_for_long_are_closed_but_one(world):
    conns = [Conn(100.0) for _ in range(4)]
    for conn in conns:
        conn.heard_at = 160.0
        world.pool.add(conn)
    world.pool.check(159.0, False)
    assert len(world.pool.connections()) == 4
    world.pool.check(160.0, False)
    assert len(world.pool.connections()) == 1


def test_a_timer_comes_when_it_is_woken_and_ends():
    """Also where a check fails."""
    times = []

    def check(now):
        times.append(now)
        if len(times) == 1:
            raise ZeroDivisionError
        return now + 1000.0

    timer = PoolTimer(check)
    timer.start()
    wait_until(lambda: times)
    timer.wake()
    wait_until(lambda: len(times) > 1)
    assert timer.stop(Deadline(WAIT))
