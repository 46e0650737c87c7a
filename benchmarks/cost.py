"""How many bytecodes the pure packages execute for a message: ``python benchmarks/cost.py``.

Counted, not timed: the same number on every machine and under any load, for one version of
Python. ``cost.json`` holds what it was; tests/test_cost.py fails when it rises by a fifth.
``--write`` notes today's numbers for the Python it runs on; 3.12 and later do not report
the opcodes of frames that begin while the trace function runs, so there is nothing to note.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from nsqclient.consumer.rdy import RdyDistributor
from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.frames import OK, FrameReader, encode_frame, encode_message
from nsqclient.protocol.frames import FrameType as Type
from nsqclient.protocol.layers.snappy import SnappyLayer

NOTED = Path(__file__).with_name("cost.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
BATCH = 100
_ID = b"0123456789abcdef"


def count(work: Callable[[], Any]) -> int:
    """Return how many bytecodes ``work`` executes, those of what it calls included."""
    executed = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal executed
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        executed += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return executed


def _subscribed() -> ClientProtocol:
    core = ClientProtocol()
    core.send_identify({})
    core.receive_data(encode_frame(Type.RESPONSE, b'{"max_rdy_count":2500}'))
    core.send_sub("topic", "channel")
    core.receive_data(encode_frame(Type.RESPONSE, OK))
    core.take_events()
    core.data_to_send()
    return core


def _frames(size: int = 200) -> bytes:
    return BATCH * encode_message(1, 1, _ID, size * b"x")


def parse() -> Callable[[], Any]:
    """A hundred messages in one read: frames to tuples."""
    reader, data = FrameReader(), _frames()
    return lambda: reader.feed(data)


def receive() -> Callable[[], Any]:
    """The same through the client's state machine."""
    core, data = _subscribed(), _frames()

    def work() -> None:
        core.receive_data(data)
        core.take_events()

    return work


def receive_one() -> Callable[[], Any]:
    """One message in a read, and its FIN: what max_in_flight 1 costs the core."""
    core, data = _subscribed(), encode_message(1, 1, _ID, 200 * b"x")

    def work() -> None:
        for _ in range(BATCH):
            core.receive_data(data)
            core.take_events()
            core.send_fin([_ID])
            core.data_to_send()

    return work


def finish() -> Callable[[], Any]:
    """FIN for a hundred messages that were handled together."""
    core, ids = _subscribed(), BATCH * [_ID]

    def work() -> None:
        core.send_fin(ids)
        core.data_to_send()

    return work


def publish() -> Callable[[], Any]:
    """A hundred PUBs and their answers."""
    core, body, answer = _subscribed(), 200 * b"x", encode_frame(Type.RESPONSE, OK)

    def work() -> None:
        for number in range(BATCH):
            core.send_publish(commands.pub("topic", body), number)
        core.data_to_send()
        core.receive_data(BATCH * answer)
        core.take_events()

    return work


def snappy() -> Callable[[], Any]:
    """A hundred messages through the snappy layer."""
    data, layer = SnappyLayer().encode(_frames()), SnappyLayer()
    return lambda: list(layer.decode(data))


def share() -> Callable[[], Any]:
    """A look at the RDY of a hundred connections."""
    sharing = RdyDistributor(0.5, 10.0, 30.0, random.Random(1))
    for key in range(BATCH):
        sharing.add(key, 2500, 0.0)
    sharing.decide(0.0, 1000, level=1000)
    return lambda: sharing.decide(1.0, 1000, level=1000)


WORKS: dict[str, Callable[[], Callable[[], Any]]] = {
    work.__name__: work for work in (parse, receive, receive_one, finish, publish, snappy, share)
}


def measure(name: str) -> float:
    """Return the bytecodes of one work for each message, or connection."""
    work = WORKS[name]()
    work()  # what the first time imports or caches, no message costs
    return count(work) / BATCH


def noted() -> dict[str, float] | None:
    """Return what was noted for this version of Python; None where nothing was."""
    versions: dict[str, dict[str, float]] = json.loads(NOTED.read_text())
    return versions.get(VERSION)


def main(argv: list[str] | None = None) -> int:
    """Print today's costs beside what was noted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="note today's numbers")
    arguments = parser.parse_args(argv)
    now = {name: measure(name) for name in WORKS}
    before = noted() or {}
    for name, cost in now.items():
        was = f"{before[name]:8.1f}" if name in before else "       -"
        print(f"{name:<12} {cost:8.1f} bytecodes   noted {was}")
    if arguments.write:
        versions = json.loads(NOTED.read_text()) if NOTED.exists() else {}
        versions[VERSION] = now
        NOTED.write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
