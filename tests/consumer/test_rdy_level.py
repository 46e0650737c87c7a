"""RdyLevel by value: how much of max_in_flight the handlers finish in time."""

from __future__ import annotations

import pytest

from nsqclient.consumer.rdy import WINDOW, LevelReason, RdyLevel, Snapshot

#: One worker and connection, and half a second for what is in flight.
SEEN = Snapshot(max_in_flight=1000, workers=1, connections=1, msg_timeout=1.0, arrived=0,
                longest_running=0.0)


def make(*handler_times, value=0, share=0.5, now=0.0, **seen):
    """Return a RdyLevel that had ``value`` and looked once, after handlers of these times."""
    level = RdyLevel(share)
    level.value = value
    level.handler_times.extend(handler_times)
    level.look(now, SEEN._replace(**seen))
    return level


@pytest.mark.parametrize("workers, connections, value", [(1, 1, 1), (8, 1, 8), (2, 5, 5)])
def test_the_first_level_is_one_for_each_worker_and_each_connection(workers, connections, value):
    """Nothing is known before the first handler has ended, and each nsqd is to be heard."""
    level = make(workers=workers, connections=connections)
    assert (level.value, level.reason, level.handler_time) == (value, LevelReason.START, None)


def test_the_level_doubles_whenever_as_many_messages_have_arrived():
    level = make()
    level.handler_times.append(1e-6)
    levels = []
    for arrived in range(2000):
        if level.look(0.0, SEEN._replace(arrived=arrived)):
            levels.append((arrived, level.value))
    assert levels[:4] == [(1, 2), (3, 4), (7, 8), (15, 16)]
    assert levels[7:] == [(127 + WINDOW, 256)] + [
        (255 + WINDOW * n, min(1000, 256 * 2 ** n)) for n in (1, 2)] or levels[-1][1] == 1000
    assert level.reason is LevelReason.MAX_IN_FLIGHT


@pytest.mark.parametrize("handler_time, workers, msg_timeout, share, value", [
    (0.005, 1, 1.0, 0.5, 100), (0.005, 8, 1.0, 0.5, 800), (0.005, 1, 1.0, 1.0, 200),
    (0.005, 1, 2.0, 0.5, 200), (0.0006, 1, 1.0, 0.5, 833), (0.4, 1, 1.0, 0.5, 1),
])
def test_what_is_in_flight_is_handled_within_the_share(
    handler_time, workers, msg_timeout, share, value
):
    """workers x share x msg_timeout / handler time."""
    level = make(handler_time, value=1000, workers=workers, msg_timeout=msg_timeout, share=share)
    assert (level.value, level.reason) == (value, LevelReason.HANDLER_TIME)


@pytest.mark.parametrize("workers", [1, 8])
def test_each_worker_has_one_message_however_long_it_takes(workers):
    """A handler may take longer than msg_timeout."""
    assert make(100.0, value=1000, workers=workers).value == workers


def test_the_slowest_of_the_last_handlers_counts():
    """A slow handler holds up all messages behind it; it is forgotten in time."""
    level = make(*[0.001] * WINDOW, value=500)
    assert level.value == 500
    level.handler_times.append(0.1)
    level.look(0.0, SEEN)
    assert (level.value, level.handler_time) == (5, 0.1)
    level.handler_times.extend([0.001] * WINDOW)
    level.look(0.0, SEEN._replace(arrived=5))
    assert level.value == 10


def test_a_handler_that_is_still_running_counts():
    assert make(0.001, value=400, longest_running=0.25).value == 2


@pytest.mark.parametrize("handler_time", [0.0051, 0.006, 0.0098])
def test_the_level_does_not_oscillate(handler_time):
    """It falls as far as it must, and rises only where twice as much is done in time."""
    level = make(0.0098, value=1000)
    assert level.value == 51
    for arrived in range(1000):
        level.handler_times.clear()
        level.handler_times.append(handler_time if arrived % 2 else 0.0098)
        assert not level.look(0.0, SEEN._replace(arrived=arrived))


def test_collected_messages_take_no_time():
    """While a handler holds messages max_in_flight is the level, and what it took is forgotten."""
    level = make(2.0, value=1000)
    assert level.value == 1
    level.hold(until=5.0)
    level.look(4.9, SEEN)
    assert (level.value, level.reason, level.handler_time) == (1000, LevelReason.HELD, None)
    level.look(5.0, SEEN)
    assert level.value == 1000
    level.handler_times.append(0.005)
    level.look(5.0, SEEN)
    assert (level.value, level.reason) == (100, LevelReason.HANDLER_TIME)


@pytest.mark.parametrize("change", [{"max_in_flight": 0}, {"max_in_flight": 1}, {"workers": 8}])
def test_no_change_leaves_a_level_of_zero(change):
    """max_in_flight may be 0 for a while, also while messages are held."""
    level = make(**change)
    level.hold(until=5.0)
    for now in (1.0, 5.0):
        level.look(now, SEEN._replace(**change))
        assert level.value >= 1
