"""The listening socket with a thread per client."""

import contextlib
import errno
import logging
import socket
import threading

import pytest

from nsqclient.devserver import acceptor as acceptor_module
from nsqclient.devserver.acceptor import Acceptor
from nsqclient.runtime.deadline import Deadline
from tests.support.servers.raw_socket import ask, connect, read_all
from tests.support.waiting import wait_until


def echo(sock, _address):
    while data := sock.recv(1000):
        sock.sendall(data)


@pytest.fixture
def make(leak_guard):
    made = []

    def make(serve=echo, host="127.0.0.1", port=0):
        acceptor = Acceptor("test", host, port, serve)
        made.append(acceptor)
        return acceptor

    yield make
    for acceptor in made:
        acceptor.stop()


def test_a_client_too_many_is_closed(make, monkeypatch, caplog):
    monkeypatch.setattr(acceptor_module, "_MOST_THREADS", 1)
    acceptor = make()
    acceptor.start()
    with connect(acceptor.address) as first:
        first.sendall(b"x")
        assert first.recv(1) == b"x"
        with connect(acceptor.address) as second:
            assert read_all(second) == b""
    wait_until(lambda: "a client is not served: 1 clients have a thread each" in caplog.text)

    def is_served() -> bool:
        with contextlib.suppress(OSError), connect(acceptor.address) as third:
            third.sendall(b"x")
            return third.recv(1) == b"x"
        return False

    wait_until(is_served)


def test_stop_warns_about_a_thread_that_does_not_end(make, caplog):
    release = threading.Event()
    acceptor = make(lambda _sock, _address: release.wait(10))
    acceptor.start()
    with connect(acceptor.address), caplog.at_level(logging.WARNING):
        wait_until(lambda: any(t.name.startswith("nsq-test-1") for t in threading.enumerate()))
        acceptor.stop(Deadline(0.05))
    release.set()
    assert "nsq-test-127.0.0.1:" in caplog.text


def fail_once(monkeypatch, target, name, error):
    errors = [error]
    real = getattr(target, name)

    def call(*args, **kwargs):
        if errors:
            raise errors.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, call)


@pytest.mark.parametrize(("target", "name", "error"), [
    (threading.Thread, "start", RuntimeError("can't start new thread")),
    (socket.socket, "setsockopt", OSError(errno.EINVAL, "Invalid argument")),
    (threading.Thread, "__init__", MemoryError("no memory")),
])
def test_a_client_that_cannot_be_served_ends_alone(make, monkeypatch, caplog, target, name, error):
    acceptor = make()
    acceptor.start()
    fail_once(monkeypatch, target, name, error)
    assert ask(acceptor.address, b"x") == b""
    with connect(acceptor.address) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"
    acceptor.stop()
    lines = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.getMessage() for each in lines] == [
        f"{acceptor.address}: a client is not served: {error}"]
    assert bool(lines[0].exc_info) == isinstance(error, MemoryError)


def test_accepting_goes_on_without_descriptors(make, monkeypatch, caplog):
    """EMFILE is logged, some times at most; the client that waits is served once there are some."""
    acceptor = make()
    errors = [OSError(errno.EMFILE, "Too many open files")] * 60
    real = socket.socket.accept

    def accept(sock):
        if errors:
            raise errors.pop()
        return real(sock)

    monkeypatch.setattr("nsqclient.devserver.acceptor._PAUSE", 0.001)
    monkeypatch.setattr(socket.socket, "accept", accept)
    acceptor.start()
    with connect(acceptor.address) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
    lines = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert lines[0].getMessage() == (
        f"{acceptor.address}: a client is not served: [Errno {errno.EMFILE}] Too many open files")
    assert 0 < len(lines) < 60
