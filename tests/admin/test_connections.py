"""One client cannot keep others from the page by opening connections."""

import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from nsqclient.admin import AdminSettings, app
from nsqclient.admin.app import AdminServer, choose_victim


def channel(address, last_activity, has_request=False, will_close=False):
    return SimpleNamespace(addr=(address, 1), last_activity=last_activity,
                           requests=[1] * has_request, will_close=will_close)


@pytest.mark.parametrize("channels, victim", [
    ([], None), ([("a", 1), ("a", 2), ("b", 3)], None),
    ([("a", 5), ("a", 2), ("a", 9)], 1),
    ([("a", 5), ("a", 2, True), ("a", 9)], 0),
    ([("a", 5, True), ("a", 2, True), ("a", 9, True)], 2),
    ([("a", 5, False, True), ("a", 2), ("a", 9)], None),
    ([("b", 1), ("a", 5), ("a", 6), ("c", 1), ("d", 1)], 1),
])
def test_the_address_with_the_most_connections_loses_one(monkeypatch, channels, victim):
    monkeypatch.setattr(app, "MOST_OF_ADDRESS", 2)
    monkeypatch.setattr(app, "MOST_CONNECTIONS", 4)
    found = [channel(*each) for each in channels]
    assert choose_victim(found) is (None if victim is None else found[victim])


@pytest.fixture
def page(leak_guard):
    with AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0) as server:
        host, port = server.address.split(":")
        yield lambda: socket.create_connection((host, int(port)), timeout=20)


def ping(sock):
    sock.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return sock.recv(12)


def test_idle_connections_of_one_client_do_not_take_the_page_away(page, monkeypatch):
    monkeypatch.setattr(app, "MOST_OF_ADDRESS", 5)
    with ExitStack() as stack:
        idle = [stack.enter_context(page()) for _ in range(30)]
        assert ping(stack.enter_context(page())) == b"HTTP/1.1 200"
        assert ping(idle[-1]) == b"HTTP/1.1 200"
        assert idle[0].recv(1) == b""


@pytest.mark.parametrize("begin", [b"", b"GET / HT", b"POST /x HTTP/1.1\r\nA: b\r\n"])
def test_the_head_of_a_request_has_to_come_soon(page, monkeypatch, begin):
    monkeypatch.setattr(app, "HEAD_TIMEOUT", 0.3)
    with page() as slow, page() as used:
        rest = ping(used)
        assert rest == b"HTTP/1.1 200"
        while not rest.endswith(b"OK"):  # the body may come later than the head
            rest += used.recv(4096)
        slow.sendall(begin)
        slow.settimeout(0.05)
        ended = time.monotonic() + 20
        while time.monotonic() < ended:
            try:
                if begin:
                    slow.sendall(b"x")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("the connection stays open")
        assert ping(used) == b"HTTP/1.1 200"


def test_a_stop_whose_thread_has_ended_before_it_is_woken(monkeypatch, leak_guard):
    server = AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0)
    server.start()
    trigger, thread = server._server.trigger, server._thread
    pull = trigger._physical_pull

    def woken_by_another():
        pull()
        thread.join(20)
        pull()

    monkeypatch.setattr(trigger, "_physical_pull", woken_by_another)
    server.stop()
    assert not thread.is_alive()


def test_a_second_start_is_refused(leak_guard):
    with AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0) as server:
        address = server.address
        with pytest.raises(RuntimeError, match="already started"):
            server.start()
        assert server.address == address


@pytest.mark.parametrize("part", ["create_app", "PageServer"])
def test_a_failed_start_leaves_nothing_open(monkeypatch, leak_guard, part):
    socks, listen = [], app.listen

    def listening(host, port):
        socks.append(listen(host, port))
        return socks[0]

    def fail(*args, **options):
        raise RuntimeError("no more threads")

    monkeypatch.setattr(app, "listen", listening)
    monkeypatch.setattr(app, part, fail)
    server = AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0)
    with pytest.raises(RuntimeError, match="no more threads"):
        server.start()
    assert socks[0].fileno() == -1
