"""The HTTP server of the admin page: slow clients, idle connections, and heads of requests."""

from __future__ import annotations

import socket
import threading

import pytest
import requests

from nsqclient.admin import AdminSettings, wsgi
from nsqclient.admin.server import AdminServer
from nsqclient.admin.wsgi import IDLE_TIMEOUT, RECEIVE_TIMEOUT, SEND_TIMEOUT, Progress, head_error
from tests.support.waiting import wait_until


@pytest.fixture
def server(leak_guard):
    """A page whose nsqd does not exist."""
    with AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0) as found:
        yield found


def connect(server):
    """A connection to it."""
    host, _, port = server.address.partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize("progress, seconds", [
    (Progress(100.0, None, None), RECEIVE_TIMEOUT),
    (Progress(None, 100.0, None), SEND_TIMEOUT),
    (Progress(None, None, 100.0), IDLE_TIMEOUT),
])
def test_a_connection_without_progress_is_overdue(progress, seconds):
    """Each state has its limit; a request under way has none."""
    assert not progress.is_overdue(100.0 + seconds)
    assert progress.is_overdue(100.1 + seconds)
    assert not Progress(None, None, None).is_overdue(1e9)


@pytest.mark.parametrize("head, reason", [
    (b"GET / HTTP/1.1\r\nHost: a", ""),
    (b"GET / HTTP/1.1\r\nX: a\tb\xc3\xa4", ""),
    (b"GET / HTTP/1.1\r\nX: a\rY: b", "control character"),
    (b"GET / HTTP/1.1\r\nX: a\nY: b", "control character"),
    (b"GET http://[ HTTP/1.1", "no URL"),
    (b"GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length:2", "several"),
    (b"GET / HTTP/1.1\r\nContent-Length: 1x", "no number"),
    (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", "both"),
])
def test_heads_that_can_be_read_in_two_ways_are_rejected(head, reason):
    """By their bytes, before anything is interpreted."""
    assert reason in head_error(head) and bool(reason) == bool(head_error(head))


def test_a_client_that_sends_slowly_is_cut(server, monkeypatch):
    """Bytes that come in time do not help: the whole request has one limit."""
    monkeypatch.setattr(wsgi, "RECEIVE_TIMEOUT", 0.5)
    with connect(server) as conn:
        conn.settimeout(0.05)
        for byte in b"GET /ping HTTP/1.1\r\nX-Long: " + b"x" * 2000:
            try:
                conn.sendall(bytes([byte]))
                if conn.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return  # closed, and reset by our next byte
    raise AssertionError("it was not cut")


def test_a_client_that_reads_nothing_is_cut(server, monkeypatch):
    """What waits for it is dropped, and its connection is closed."""
    monkeypatch.setattr(wsgi, "SEND_TIMEOUT", 0.5)
    with connect(server) as conn:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.setblocking(False)
        requests = b"GET /static/parts.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100

        def is_cut() -> bool:
            try:
                conn.send(requests)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        wait_until(is_cut, timeout=60)


def test_an_idle_connection_is_closed(server, monkeypatch):
    """A connection without a request costs a little at each event."""
    monkeypatch.setattr(wsgi, "IDLE_TIMEOUT", 0.2)
    with connect(server) as conn:
        assert conn.recv(1) == b""


def test_a_request_without_a_host_is_answered(server):
    """Health checks of HTTP/1.0 name none; browsers always do."""
    with connect(server) as conn:
        conn.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        with conn.makefile("rb") as file:
            assert b" 200 " in file.readline()


def test_idle_connections_occupy_no_thread(server):
    """Whatever their number, the page answers."""
    connections = [connect(server) for _ in range(100)]
    try:
        with connect(server) as conn:
            conn.sendall(b"GET /ping HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            with conn.makefile("rb") as file:
                assert file.readline() == b"HTTP/1.0 200 OK\r\n"
    finally:
        for each in connections:
            each.close()


def limit_threads(monkeypatch, fails):
    """Let threads with some names not be started."""
    real = threading.Thread.start

    def start(thread):
        if fails(thread.name):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_a_page_is_served_by_the_threads_that_there_are(leak_guard, monkeypatch, caplog):
    """One is enough; a request that needs another one gets 500."""
    limit_threads(monkeypatch, lambda name: name.startswith("nsq-admin-") and name not in (
        "nsq-admin-http", "nsq-admin-request-0"))
    with AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0) as server:
        assert requests.get(f"{server.url}ping", timeout=30).status_code == 200
        assert requests.get(f"{server.url}api/live/topics", timeout=30).status_code == 500
    assert "requests are served by 1 threads, not 24: can't start new thread" in caplog.text


@pytest.mark.parametrize("name", ["nsq-admin-http", "nsq-admin-request-0"])
def test_a_page_without_any_thread_cannot_be_started(leak_guard, monkeypatch, name):
    """The error is typed, and nothing is left open."""
    limit_threads(monkeypatch, lambda each: each == name)
    server = AdminServer(AdminSettings(nsqd_http_addresses=("127.0.0.1:1",)), port=0)
    with pytest.raises(OSError, match="cannot serve the page: can't start new thread"):
        server.start()
    server.stop()
