"""An nsqd that means harm costs a typed error, a bounded time and bounded memory."""

import contextlib
import struct
import threading
import time
import zlib

import pytest

from nsqclient import Config, ConnectError, Consumer, Producer, PublishError
from nsqclient.connection.connection import Connection
from nsqclient.runtime.deadline import Deadline
from tests.faults.dialogues import QUICK
from tests.support.memory import MIB, run_bounded
from tests.support.servers.scripted import BEAT, OK, Peer, ScriptedServer, error, message, response
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(60),
]

LONG = pytest.mark.long
#: What any of these may cost, in bytes. A read takes 256 KiB; the test's own part is in it.
LIMIT = 100 * MIB
#: Bytes that a hostile server sends when it sends without end.
ENDLESS = 300 * MIB


def pour(peer: Peer, data: bytes, total: int = ENDLESS) -> None:
    block = data * max(1, min(65536, total) // len(data))
    with contextlib.suppress(OSError):
        for _ in range(max(1, total // len(block))):
            peer.send(block)


def test_endless_heartbeats_do_not_hold_up_the_opening():
    began = time.monotonic()

    def script(peer: Peer) -> None:
        with contextlib.suppress(EOFError, OSError):
            peer.identify(b"")
            while True:
                peer.send(BEAT * 100)

    with ScriptedServer(script) as server:
        with pytest.raises(ConnectError, match="no answer within 0.5 s"):
            Connection(server.address, Config(), delegate=None).open(Deadline(0.5))
    assert time.monotonic() - began < 15


def subscribed(
    attack, config: Config = QUICK, prologue=lambda peer: peer.subscribe(), reason: str = ""
):
    """A consumer of a server that attacks after SUB: it is there, ends in time, and says why."""
    errors = []
    over = threading.Event()

    def script(peer: Peer) -> None:
        with contextlib.suppress(EOFError, OSError):
            prologue(peer)
            attack(peer)
        over.set()

    def work() -> None:
        release = threading.Event()
        with ScriptedServer(script) as server:
            consumer = Consumer(
                "t", "c", lambda message: release.wait(30), config=config,
                nsqd_tcp_addresses=[server.address], on_error=errors.append,
            ).start()
            over.wait(25)
            wait_until(lambda: not reason or reason in str(errors))
            began = time.monotonic()
            release.set()
            consumer.stop(1)
            assert time.monotonic() - began < 15

    return work


@pytest.mark.long
def test_answers_to_endless_heartbeats_do_not_pile_up():
    run_bounded(subscribed(lambda peer: pour(peer, BEAT, 8 * MIB)), LIMIT)


def test_endless_error_frames_are_counted_and_not_kept():
    late = error("E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight")
    run_bounded(subscribed(lambda peer: pour(peer, late, 8 * MIB)), LIMIT)


@pytest.mark.parametrize("text", ["E_INVALID ", "E_FIN_FAILED "])
def test_an_error_of_many_megabytes_ends_the_connection(text):
    def attack(peer: Peer) -> None:
        peer.send(struct.pack(">II", 60 * MIB, 1), text.encode())
        pour(peer, b"x", 60 * MIB)

    run_bounded(subscribed(attack), 55 * MIB)


@pytest.mark.parametrize("size", [100_000, pytest.param(1, marks=LONG)])
def test_a_flood_of_messages_takes_bounded_memory(size):
    """RDY 0 is sent above max_queued_bytes, and after as much again the connection is cut."""
    # Bytes that arrive within the settle time are not limited, and depend on the machine.
    config = QUICK.replace(output_buffer_timeout=0.025, max_queued_bytes=16 * MIB)

    def attack(peer: Peer) -> None:
        for number in range(0, ENDLESS // (size + 34), 100):
            peer.send(*(message(b"x" * size, number + n) for n in range(100)))

    run_bounded(subscribed(attack, config, reason="ignores RDY"), LIMIT)


def test_old_messages_do_not_pile_up_behind_a_slow_handler():
    config = QUICK.replace(max_msg_size=64 * 1024, msg_timeout=1)

    def attack(peer: Peer) -> None:
        pause = threading.Event()
        for turn in range(60):
            peer.send(*(message(b"x" * 10_000, turn * 1000 + n) for n in range(500)))
            pause.wait(0.05)

    def prologue(peer: Peer) -> None:
        peer.identify(response(b'{"msg_timeout":50}'))
        peer.line()
        peer.send(OK)

    run_bounded(
        subscribed(attack, config.replace(msg_timeout=0, max_in_flight=1000), prologue), LIMIT
    )


@pytest.mark.parametrize("frame", [
    BEAT, b"\0" * 64,
    *[pytest.param(frame, marks=LONG) for frame in (message(b""), error("E_FIN_FAILED x"))],
])
def test_a_bomb_of_deflate_expands_a_little_at_a_time(frame):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = frame * 10_000
    bomb = b"".join(packer.compress(block) for _ in range(12 * MIB // len(block)))
    bomb += packer.flush(zlib.Z_SYNC_FLUSH)

    def prologue(peer: Peer) -> None:
        peer.identify(response(b'{"deflate":true,"deflate_level":6}'))
        small = zlib.compressobj(6, zlib.DEFLATED, -15)
        for _ in range(2):  # the OK of the layer and of SUB
            peer.send(small.compress(OK) + small.flush(zlib.Z_SYNC_FLUSH))
            peer.exactly(1)

    def attack(peer: Peer) -> None:
        peer.send(bomb)
        peer.until_closed()

    run_bounded(
        subscribed(attack, QUICK.replace(deflate=True, heartbeat_interval=1), prologue), 3 * LIMIT
    )


def test_publishes_to_a_hostile_nsqd_keep_their_deadline():
    """Whatever it answers, a publish ends in time with one of its outcomes."""
    answers = [b"\xff" * 64, response(b"NO"), message(), error("E_WHAT " + "x" * 5000), b"\0" * 16]

    def attacker(answer):
        def script(peer: Peer) -> None:
            with contextlib.suppress(EOFError, OSError):
                peer.identify(OK)
                peer.line()
                peer.send(answer)
                peer.until_closed()
        return script

    for answer in answers:
        with ScriptedServer(attacker(answer)) as server:
            began = time.monotonic()
            with Producer([server.address], retry_unknown=False) as producer:
                with pytest.raises(PublishError):
                    producer.publish("t", b"x", timeout=1)
                assert time.monotonic() - began < 15
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("nsq-")])
