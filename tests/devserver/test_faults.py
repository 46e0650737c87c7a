"""The controls for test authors."""

import time

import pytest

from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.commands import Fin, Ignored, Pub
from tests.support.servers.raw_client import ERROR, RESPONSE, RawClient
from tests.support.waiting import wait_until

OK = (RESPONSE, b"OK")
PUB = b"PUB t\n\0\0\0\1x"


@pytest.fixture
def client(nsqd):
    with RawClient(nsqd.tcp_address) as raw:
        assert raw.ask(b"NOP\n" + PUB) == OK
        yield raw


def test_commands_are_recorded(nsqd, client):
    client.ask(b"SUB t c\n")
    assert [command.name for command in nsqd.commands] == ["NOP", "PUB", "SUB"]
    assert nsqd.commands[1].event == Pub("t", b"x")


def test_record_is_bounded(monkeypatch):
    monkeypatch.setattr("nsqclient.devserver.faults.RECORD_SIZE", 3)
    monkeypatch.setattr("nsqclient.devserver.faults.RECORD_BYTES", 10)
    faults = Faults(lambda: None, lambda client, reset: 0)
    for number in range(5):
        faults.receive(1, Ignored(b"NOP %d" % number))
    assert [command.event.line[-1:] for command in faults.commands] == [b"2", b"3", b"4"]
    faults.receive(1, Pub("t", b"x" * 8))
    faults.receive(1, Pub("t", b"x" * 8))
    assert len(faults.commands) == 1


def test_fail_next_fails_one_command(nsqd, client):
    nsqd.faults.fail_next("PUB", "E_FIN_FAILED", "made up", times=2)
    nsqd.faults.fail_next("PUB", "E_PUB_FAILED")
    client.send(PUB * 3)
    assert [client.read_frame() for _ in range(3)] == [
        (ERROR, b"E_FIN_FAILED made up"),
        (ERROR, b"E_FIN_FAILED made up"),
        (ERROR, b"E_PUB_FAILED PUB failed"),
    ]
    client.read_end()
    assert len(nsqd.messages("t")) == 1


def test_client_whose_sub_failed_owns_no_message(nsqd, client):
    nsqd.faults.fail_next("SUB", "E_TOUCH_FAILED")
    client.ask(b"SUB t c\n")
    answer = client.ask(b"RDY 1\nFIN 0123456789abcdef\n")
    assert answer == (ERROR, b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight")
    assert client.ask(b"CLS\n") == (RESPONSE, b"CLOSE_WAIT")


def test_held_answers_are_sent_in_order_on_release(nsqd, client):
    """The command takes effect at once; its answer, and later ones, are sent on release."""
    nsqd.faults.hold_answers("PUB")
    client.send(PUB + b"SUB t c\n")
    wait_until(lambda: nsqd.commands[-1].name == "SUB")
    assert nsqd.stats("t")["topics"][0]["message_count"] == 2
    assert client.is_silent(0.1)
    nsqd.faults.release_answers()
    assert [client.read_frame(), client.read_frame()] == [OK, OK]


def test_delayed_answer_is_sent_after_its_delay(nsqd, client):
    nsqd.faults.delay_answers(0.15)
    began = time.monotonic()
    assert client.ask(PUB) == OK
    assert time.monotonic() - began >= 0.15
    nsqd.faults.delay_answers(0)
    assert client.ask(PUB) == OK


def test_heartbeat_can_precede_every_answer(nsqd, client):
    nsqd.faults.heartbeat_before_answers = True
    client.send(PUB)
    raw = client._socket.recv(100)
    assert raw == b"\0\0\0\x0f\0\0\0\0_heartbeat_" + b"\0\0\0\x06\0\0\0\0OK"


def test_split_frames_writes_small_pieces(nsqd, client):
    nsqd.faults.split_frames(seed=1, largest=3)
    client.send(PUB * 5)
    pieces = []
    while sum(map(len, pieces)) < 50:
        pieces.append(client._socket.recv(100))
    assert b"".join(pieces) == b"\0\0\0\x06\0\0\0\0OK" * 5
    assert len(pieces) > 5


@pytest.mark.parametrize("reset", [False, True])
def test_drop_connections_ends_all_or_one_client(nsqd, client, reset):
    assert nsqd.faults.drop_connections("nobody") == 0
    with RawClient(nsqd.tcp_address) as other:
        other.ask(b'IDENTIFY\n\0\0\0\x12{"client_id":"me"}')
        assert nsqd.faults.drop_connections("me", reset=reset) == 1
        assert other.read_end().reset == reset
    assert client.ask(PUB) == OK
    assert nsqd.faults.drop_connections() == 1
    client.read_end()


def test_fatal_error_can_be_followed_by_a_reset(nsqd, client):
    nsqd.faults.reset_after_error = True
    client.send(b"FOO\n")
    client.read_frame()
    assert client.read_end().reset


def test_clear_ends_all_faults(nsqd, client):
    faults = nsqd.faults
    faults.hold_answers()
    faults.split_frames(1)
    faults.heartbeat_before_answers = True
    faults.fail_next("NOP", "E_INVALID")
    client.send(PUB)
    wait_until(lambda: len(nsqd.commands) == 3)
    faults.clear()
    assert client.read_frame() == OK
    assert client.ask(b"NOP\n" + PUB) == OK
    assert faults.receive(1, Fin(b"x")) is None
