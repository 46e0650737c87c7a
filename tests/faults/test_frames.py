"""The connection to a real nsqd is cut at, before and after every frame, and at other places."""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict

import pytest

from tests.faults.dialogues import DIALOGUES, FULL, QUICK, SCAN, make_channel, try_all
from tests.support.faults.proxy import CLIENT, SERVER
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 600)]

#: Beside the boundaries, so many places anywhere.
_ANYWHERE = 100 if FULL else 6
#: Without the full form, so many of the places at boundaries.
_AT_BOUNDARIES = 6
#: Channels for each dialogue and direction.
PREFIXES = [f"{name}-{direction}" for name in DIALOGUES for direction in (CLIENT, SERVER)]
MOST = 160 if FULL else _ANYWHERE + _AT_BOUNDARIES


class Tap:
    def __init__(self) -> None:
        self.data: dict[str, bytes] = defaultdict(bytes)

    def __call__(self, link: int, direction: str, data: bytes) -> None:
        self.data[direction] += data


def ends_of_frames(data: bytes) -> list[int]:
    ends, at = [], 0
    while at < len(data):
        at += 4 + struct.unpack(">I", data[at:at + 4])[0]
        ends.append(at)
    return ends


def ends_of_commands(data: bytes) -> list[int]:
    ends, at = [4], 4
    while at < len(data):
        line_end = data.index(b"\n", at) + 1
        name = data[at:line_end].split()[0]
        at = line_end
        if name in (b"IDENTIFY", b"PUB", b"MPUB", b"DPUB"):
            ends.append(at)
            at += 4 + struct.unpack(">I", data[at:at + 4])[0]
        ends.append(at)
    return ends


def places(ends: list[int], length: int, rng: random.Random) -> list[int]:
    around = sorted({end + step for end in ends for step in (-1, 0, 1)} & set(range(length)))
    if not FULL:
        around = rng.sample(around, min(_AT_BOUNDARIES, len(around)))
    anywhere = rng.sample(range(length), min(_ANYWHERE, length))
    return sorted({*around, *anywhere})


@pytest.fixture
def old_channels(real_nsqd):
    # nsqd looks at 20 channels in 100 ms, drawn by lot: with a thousand of them a timeout would be
    # noticed after 5 s in the mean, and sometimes after 20.
    server = real_nsqd(msg_timeout=1.0, queue_scan_selection_count=len(PREFIXES) * (MOST + 1))
    for prefix in PREFIXES:
        make_channel(server, f"{prefix}-whole")
        for number in range(MOST):
            make_channel(server, f"{prefix}-{number:05d}")
    old_enough = time.monotonic() + SCAN
    wait_until(lambda: time.monotonic() > old_enough, SCAN + 1)
    return server


@pytest.mark.long
def test_a_cut_at_a_frame_loses_nothing(old_channels):
    for prefix in PREFIXES:
        name, direction = prefix.split("-")
        tap = Tap()
        DIALOGUES[name](
            old_channels, f"{prefix}-whole", QUICK, lambda proxy: proxy.set_tap(tap)
        )
        data = tap.data[direction]
        ends = (ends_of_commands if direction == CLIENT else ends_of_frames)(data)
        faults = [
            (f"{prefix} {place}", lambda proxy, place=place: proxy.cut_after(
                place, direction, reset=bool(place % 2)))
            for place in places(ends, len(data), random.Random(prefix))
        ]
        tried = try_all(old_channels, DIALOGUES[name], QUICK, faults, prefix)
        assert tried == len(faults) > _AT_BOUNDARIES
