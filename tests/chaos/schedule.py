"""What happens when: a list of events made from a seed. Pure."""

import random
from typing import NamedTuple

NSQDS, LOOKUPDS, PRODUCERS, CONSUMERS = 3, 2, 2, 3

#: Seconds at the beginning without any fault, and seconds before the end after which none begins.
CALM_START, CALM_END = 3.0, 6.0
#: Mean seconds between two faults, and seconds of rest that a target has between its faults.
GAP, REST = 1.5, 2.0


class Event(NamedTuple):
    """One fault: at ``at`` seconds ``action`` happens to ``target`` number ``number``."""

    at: float
    action: str
    target: str  #: "nsqd" (and the proxy before it), "lookupd", "producer" or "consumer"
    number: int
    seconds: float  #: how long it lasts; 0: it is over at once
    after: int = 0  #: for a cut: the bytes until it
    direction: str = "server"  #: for a cut: which side's bytes
    reset: bool = False  #: for a cut: with a RST


class _Action(NamedTuple):
    name: str
    target: str
    weight: int
    shortest: float
    longest: float


#: Cut, stalled and deaf connections, stops in order, and crashes of clients: nothing may be lost.
_ACTIONS = (
    _Action("restart", "nsqd", 4, 0.2, 4.0),
    _Action("freeze", "nsqd", 4, 0.5, 6.0),
    _Action("deaf", "nsqd", 4, 0.5, 6.0),
    _Action("slow", "nsqd", 3, 1.0, 6.0),
    _Action("refuse", "nsqd", 3, 0.5, 4.0),
    _Action("cut", "nsqd", 6, 0.0, 0.0),
    _Action("reset", "nsqd", 3, 0.0, 0.0),
    _Action("drop", "nsqd", 2, 0.0, 0.0),
    _Action("restart", "lookupd", 2, 1.0, 8.0),
    _Action("kill", "lookupd", 1, 1.0, 8.0),
    _Action("freeze", "lookupd", 2, 1.0, 8.0),
    _Action("kill", "consumer", 3, 0.1, 3.0),
    _Action("freeze", "consumer", 2, 1.0, 8.0),
    _Action("roll", "consumer", 3, 0.0, 0.0),
    _Action("kill", "producer", 2, 0.1, 3.0),
    _Action("roll", "producer", 2, 0.0, 0.0),
)
#: A killed nsqd loses its messages in memory.
_KILL = _Action("kill", "nsqd", 10, 0.2, 4.0)
_COUNTS = {"nsqd": NSQDS, "lookupd": LOOKUPDS, "producer": PRODUCERS, "consumer": CONSUMERS}


def build(seed: int, seconds: float, *, kill: bool = False) -> list[Event]:
    """Return the events of a run, in order. ``kill`` adds SIGKILL of nsqds."""
    rng = random.Random(seed)
    actions = (*_ACTIONS, _KILL) if kill else _ACTIONS
    weights = [action.weight for action in actions]
    free_at: dict[tuple[str, int], float] = {}
    events = []
    now = CALM_START
    while now < seconds - CALM_END:
        action = rng.choices(actions, weights)[0]
        index = rng.randrange(_COUNTS[action.target])
        lasts = min(rng.uniform(action.shortest, action.longest), seconds - CALM_END / 2 - now)
        count = round(10 ** rng.uniform(0, 4.5)) if action.name == "cut" else 0
        direction = rng.choice(("client", "server"))
        reset = rng.random() < 0.5
        if len(free_at) == sum(_COUNTS.values()) and min(free_at.values()) > now:
            now = min(free_at.values())  # all have one, or rest
        if free_at.get((action.target, index), 0.0) <= now:
            free_at[action.target, index] = now + lasts + REST
            events.append(Event(
                round(now, 3), action.name, action.target, index, round(lasts, 3), count,
                direction, reset,
            ))
            now += rng.expovariate(1 / GAP)
    return events
