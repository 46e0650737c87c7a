"""Turns, when there are more connections than places: nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from nsqclient.flow.rdy import RdySharing


def longest_waits(links, places, idle, interval, settle, seconds=200.0, seed=1):
    """Idle connections for so long; return the longest time that each went without RDY."""
    sharing = RdySharing(settle, idle, max(idle, 1.0), random.Random(seed))
    all_links = [sharing.add(n, 2500, 0.0) for n in range(links)]
    now, next_look, retry = 0.0, 0.0, None
    had, longest = [0.0] * links, [0.0] * links
    while now < seconds:
        now = min(next_look, retry if retry is not None else next_look)
        if now >= next_look:
            next_look += interval
        sharing.decide(now, places)
        assert sharing.load(now) <= places
        retry = sharing.next_settled(now) if sharing.wants_more(now, places) else None
        for link in all_links:
            if link.rdy:
                had[link.key] = now
            longest[link.key] = max(longest[link.key], now - had[link.key])
    return longest


@pytest.mark.parametrize("links, places", [(2, 1), (5, 1), (10, 8), (10, 9), (12, 5), (7, 6)])
@pytest.mark.parametrize("idle, interval, settle", [
    (1.0, 0.2, 0.5), (1.0, 0.5, 0.5), (1.0, 0.2, 2.0), (10.0, 5.0, 0.5), (1.0, 0.05, 0.5),
])
def test_every_connection_gets_its_turn(links, places, idle, interval, settle):
    """Within the time that all others need for a turn each, settling included, or two of them."""
    waits = longest_waits(links, places, idle, interval, settle)
    turns = links / places
    assert max(waits) <= 2 * (turns + 1) * (idle + interval + settle)


@pytest.mark.parametrize("seed", range(5))
def test_connections_in_different_phases(seed):
    """Where turns begin at different times, a level that has not settled takes nobody's turn."""
    chance = random.Random(seed)
    sharing = RdySharing(0.5, 1.0, 1.0, chance)
    links = [sharing.add(n, 2500, 0.0) for n in range(10)]
    for n, link in enumerate(links):  # pairs, 0.4 s apart, as found in a simulation
        link.rdy = int(n < 8)
        link.granted = -0.4 * (n // 2) if n < 8 else -500.0
    starved = {link.key for link in links if not link.rdy}
    now = 0.0
    while now < 20 and starved:
        now += 0.1
        sharing.decide(now, 8)
        starved -= {link.key for link in links if link.rdy}
    assert not starved


def test_after_a_shrink_the_number_out_only_falls():
    """More is out than may be: an answered message is not replaced, though its level is free."""
    sharing = RdySharing(0.5, 10.0, 30.0, random.Random(1))
    links = [sharing.add(n, 2500, 0.0) for n in range(3)]
    for link in links:
        link.in_flight = 1
    links[2].granted = 1.0  # the last in line: its message may take as long as it likes
    (raised, count), = sharing.decide(2.0, 2)
    assert count == 1
    links[1 - raised].in_flight = 0
    assert sharing.load(2.0) == 2
    assert sharing.decide(2.0, 2) == []
