"""The limits of an answer: its size, and the time until the whole of it is there."""

import gzip
import socket
import threading
from contextlib import contextmanager

import pytest

from nsqclient.errors import (
    ConfigError, NSQHTTPResponseError, NSQHTTPStatusError, NSQHTTPTransportError,
)
from nsqclient.http import NsqdHTTP
from tests.support.servers.http_recorder import recording

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@contextmanager
def dripping(first):
    """A server that sends ``first``, then a byte each 20 ms; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    end = threading.Event()

    def serve():
        conn, _ = listener.accept()
        with conn:
            try:
                conn.sendall(first)
                while not end.wait(0.02):
                    conn.sendall(b"x")
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield "127.0.0.1:%d" % listener.getsockname()[1]
    finally:
        end.set()
        thread.join(10)
        listener.close()


def test_a_body_that_arrives_slowly_times_out(leak_guard):
    """Each byte comes soon after the one before; the timeout is for all of them."""
    with dripping(HEAD) as address, NsqdHTTP(address, connect_timeout=0.1, timeout=0.3) as http:
        with pytest.raises(NSQHTTPTransportError, match="no whole answer within 0.3 s"):
            http.ping()


def test_a_slow_tls_handshake_times_out(leak_guard):
    with dripping(b"\x16\x03\x03\x40\x00") as address:
        with NsqdHTTP(f"https://{address}", connect_timeout=0.3) as http:
            with pytest.raises(NSQHTTPTransportError, match="no TLS handshake within 0.3 s"):
                http.ping()


def test_a_redirect_is_not_followed(leak_guard):
    with recording() as server, NsqdHTTP(server.address) as http:
        server.status, server.headers = 302, {"Location": "http://other/info"}
        with pytest.raises(NSQHTTPStatusError, match="to which it redirects, http://other/info"):
            http.info()
        assert len(server.requests) == 1


def test_response_over_the_size_limit_is_refused(leak_guard):
    with recording() as server, NsqdHTTP(server.address, max_answer_size=1000) as http:
        server.body = b"x" * 1001
        with pytest.raises(NSQHTTPResponseError, match="more than 1000 bytes"):
            http.stats_text()
        server.body = b"x" * 1000
        assert len(http.stats_text()) == 1000


def test_size_limit_is_for_the_decompressed_response(leak_guard):
    with recording() as server, NsqdHTTP(server.address, max_answer_size=10**6) as http:
        server.body = gzip.compress(bytes(10**7))
        server.headers = {"Content-Encoding": "gzip"}
        with pytest.raises(NSQHTTPResponseError, match="more than 1000000 bytes"):
            http.stats_text()


@pytest.mark.parametrize("encoding", ["gzip", "GZip", "identity"])
def test_gzip_and_identity_are_read(leak_guard, encoding):
    """A proxy before nsqd may compress its answers once."""
    with recording() as server, NsqdHTTP(server.address) as http:
        server.body = b"text" if encoding == "identity" else gzip.compress(b"text")
        server.headers = {"Content-Encoding": encoding}
        assert http.stats_text() == "text"


def test_size_limit_must_be_at_least_one_byte():
    with pytest.raises(ConfigError, match="max_answer_size"):
        NsqdHTTP("h:1", max_answer_size=0)
