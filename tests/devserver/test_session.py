"""The session of one client, with a transport that is not connected."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from nsqclient.devserver.broker import Broker
from nsqclient.devserver.command_handler import CommandHandler
from nsqclient.devserver.engine import Engine
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.protocol.server import ServerProtocol
from nsqclient.devserver.session import Session, SessionConfig

PUB = b"PUB t\n\0\0\0\1x"


class FakeTransport:
    """Collects what is written. ``calls`` has the calls that change it."""

    def __init__(self):
        self.written = b""
        self.calls = []
        self.is_reading = True
        self.socket = SimpleNamespace(
            setsockopt=lambda *_args: self.calls.append("setsockopt"),
            shutdown=lambda _how: self.calls.append("shutdown"))

    def get_extra_info(self, _name):
        return self.socket

    def get_write_buffer_size(self):
        return 0

    def set_write_buffer_limits(self, _high):
        pass

    def write(self, data):
        self.written += data

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def __getattr__(self, name):
        return lambda: self.calls.append(name)


@pytest.fixture
def calls():
    """What the session asks its event loop to call."""
    return []


@pytest.fixture
def transport():
    return FakeTransport()


@pytest.fixture
def session(calls):
    faults = Faults(lambda: None, lambda _client, _reset: 0, lambda _topic, _channel: 0)
    config = SessionConfig(
        lambda number, layers: CommandHandler(ServerProtocol(), faults, number, layers))
    return Session(
        Engine(Broker()), faults, config, "127.0.0.1:1", 1, calls.append, lambda _session: None)


def in_loop(function):
    """Call it in an event loop, which ends afterwards."""
    async def call():
        function()

    asyncio.run(call())


def test_a_client_that_waited_for_the_loop_has_its_full_time(session, transport, monkeypatch):
    connected = time.monotonic() + 1000
    monkeypatch.setattr(
        "nsqclient.devserver.session.time", SimpleNamespace(monotonic=lambda: connected))
    in_loop(lambda: session.connection_made(transport))
    assert transport.calls == []


def test_a_session_leaves_a_lost_connection_alone(session, transport):
    """After its end, a transport of asyncio fails on abort()."""
    def end():
        session.connection_made(transport)
        session.connection_lost(None)
        transport.calls.clear()
        session._abort()
        session.wake()
        session._serve()

    in_loop(end)
    assert transport.calls == [] and transport.written == b""


def test_the_end_reaches_a_client_whose_socket_a_forked_child_holds(session, transport):
    def end():
        session.connection_made(transport)
        session.connection_lost(None)

    in_loop(end)
    assert transport.calls[-1] == "shutdown"


def test_a_reset_is_preceded_by_no_orderly_end(session, transport):
    def end():
        session.connection_made(transport)
        session._abort(reset=True)
        session._abort()
        session.connection_lost(None)

    in_loop(end)
    assert transport.calls.count("setsockopt") == 1 and "shutdown" not in transport.calls


def test_a_client_with_many_commands_takes_turns_with_others(
    session, transport, calls, monkeypatch
):
    """After a turn it is called again by the loop, once, and nothing more is read."""
    monkeypatch.setattr("nsqclient.devserver.session._TURN", 0.0)

    def publish():
        session.connection_made(transport)
        session.data_received(b"  V2" + PUB * 5000)
        assert not transport.is_reading
        counts = [0]
        while calls:
            session._serve()  # a timer
            [call] = calls
            calls.clear()
            call()
            counts.append(session.handler.pub_counts.get("t", 0))
        assert all(after - before <= 1000 for before, after in zip(counts, counts[1:]))
        assert counts[-1] == 5000 and transport.is_reading

    in_loop(publish)


def test_commands_wait_while_the_client_does_not_read(session, transport):
    def publish():
        session.connection_made(transport)
        session.pause_writing()
        session.data_received(b"  V2" + PUB)
        assert session.handler.pub_counts == {} and not transport.is_reading
        session.resume_writing()
        assert session.handler.pub_counts == {"t": 1} and transport.is_reading

    in_loop(publish)
