"""The thread that serves all clients of a server."""

import logging
import socket
import threading

import pytest

from nsqclient.devserver import Nsqd
from nsqclient.devserver.command_handler import CommandHandler
from tests.support.servers.raw_client import MESSAGE, RESPONSE, Closed, RawClient
from tests.support.waiting import wait_until

OK = (RESPONSE, b"OK")
PUB = b"PUB t\n\0\0\0\1x"


@pytest.fixture
def auth_server(leak_guard):
    """A server that accepts and does not answer; ``close()`` ends what waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def address_of(server):
    return "{}:{}".format(*server.getsockname())


def thread_names():
    return [each.name for each in threading.enumerate() if each.name.startswith("nsq-devserver")]


def test_a_client_that_does_not_read_delays_no_other(leak_guard):
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as deaf, RawClient(nsqd.tcp_address) as other:
        body = bytes(1024 * 1024)
        for _ in range(20):
            nsqd.publish("big", body)
        deaf.subscribe("big", "c", ready=20)
        wait_until(lambda: {each.state for each in nsqd.messages("big", "c")} == {"in_flight"})
        for _ in range(100):
            assert other.ask(PUB) == OK
        assert sum(deaf.read_frame()[0] == MESSAGE for _ in range(20)) == 20


def test_stop_waits_for_a_client_that_authorizes(auth_server):
    with Nsqd(auth_http_addresses=[address_of(auth_server)]) as nsqd, \
            RawClient(nsqd.tcp_address) as client:
        client.send(b"AUTH\n\0\0\0\1s")
        request, _ = auth_server.accept()
        stopping = threading.Thread(target=nsqd.stop)
        stopping.start()
        wait_until(lambda: nsqd.faults.drop_connections() == 0)  # stop() has dropped the client
        assert stopping.is_alive()
        request.close()
        stopping.join(60)
    assert thread_names() == []


@pytest.mark.parametrize(("error", "level"), [
    (RuntimeError("a fault"), logging.ERROR), (OSError(5, "a fault"), logging.DEBUG)])
def test_a_client_that_fails_ends_alone(leak_guard, monkeypatch, caplog, error, level):
    caplog.set_level(logging.DEBUG, "nsqclient.devserver")
    handle = CommandHandler.handle

    def fail(self, event, *args):
        if getattr(event, "topic", "") == "bad":
            raise error
        return handle(self, event, *args)

    monkeypatch.setattr(CommandHandler, "handle", fail)
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as bad, RawClient(nsqd.tcp_address) as other:
        with pytest.raises(Closed):
            bad.ask(PUB.replace(b" t", b" bad"))
        assert other.ask(PUB) == OK
    assert any(each.levelno == level and "a fault" in (each.getMessage() + str(each.exc_info))
               for each in caplog.records)


def test_a_client_whose_end_fails_delays_no_other(leak_guard, monkeypatch, caplog):
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as other:
        assert other.ask(PUB) == OK
        with monkeypatch.context() as patch:
            def fail(*_args):
                raise RuntimeError("a fault")

            patch.setattr(CommandHandler, "unsubscribe", fail)
            with RawClient(nsqd.tcp_address) as bad, pytest.raises(Closed):
                bad.ask(b"X\n")
                bad.read_frame()
            assert other.ask(PUB) == OK
        wait_until(lambda: len(nsqd.stats()["producers"]) == 1)
    assert any("a fault" in str(each.exc_info) for each in caplog.records)


def test_messages_follow_a_pause_between_pieces(leak_guard):
    """A pause after the last byte that was encoded does not end the flow."""
    with Nsqd() as nsqd, RawClient(nsqd.tcp_address) as client:
        nsqd.publish_many("big", [bytes(1024 * 1024)] * 8)
        nsqd.faults.split_frames(1, 4 * 1024 * 1024, 0.01)
        client.subscribe("big", "c", ready=8)
        assert [client.read_frame()[0] for _ in range(8)] == [MESSAGE] * 8


def test_a_client_after_the_end_is_closed(leak_guard):
    """The listener may pass it on where stop() had no time to wait for it."""
    with Nsqd() as nsqd, socket.create_server(("127.0.0.1", 0)) as server:
        nsqd.stop()
        with socket.create_connection(server.getsockname(), timeout=20) as client:
            nsqd._sessions.serve(server.accept()[0], "127.0.0.1:1")
            assert client.recv(1) == b""
        assert nsqd._sessions.by_number() == {}
