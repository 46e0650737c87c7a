"""The listening socket with a thread per client."""

import errno
import logging
import threading

import pytest

from nsqclient.devserver.acceptor import Acceptor
from nsqclient.runtime.deadline import Deadline
from tests.support.raw import ask, connect, read_all
from tests.support.waiting import wait_until


def echo(sock, _address):
    """Send everything back."""
    while data := sock.recv(1000):
        sock.sendall(data)


@pytest.fixture
def make(leak_guard):
    """Factory of acceptors on a free port, stopped after the test."""
    made = []

    def make(serve=echo, host="127.0.0.1", port=0):
        acceptor = Acceptor("test", host, port, serve)
        made.append(acceptor)
        return acceptor

    yield make
    for acceptor in made:
        acceptor.stop()


def test_serves_several_clients_at_once(make):
    """Each client has a thread, so one that says nothing holds nobody up."""
    acceptor = make()
    acceptor.start()
    with connect(acceptor.address), connect(acceptor.address) as second:
        second.sendall(b"hello")
        assert second.recv(10) == b"hello"


def test_stop_ends_clients_and_frees_the_port(make):
    """After stop no client is connected and the port can be taken again."""
    acceptor = make()
    acceptor.start()
    with connect(acceptor.address) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        acceptor.stop()
        acceptor.stop()
        assert read_all(client) == b""
    make(port=acceptor.port).start()


def test_stop_without_start(make):
    """What was never started, or only listens, is stopped too."""
    make().stop()
    acceptor = make()
    acceptor.listen()
    acceptor.stop()


def test_a_taken_port_says_which(make):
    """The error names address and reason, and keeps the number."""
    first = make()
    first.start()
    with pytest.raises(OSError, match=f"cannot listen on {first.address}: ") as caught:
        make(port=first.port).listen()
    assert caught.value.errno == errno.EADDRINUSE


def test_an_unknown_host_says_so(make):
    """A host that is not ours cannot be listened on."""
    with pytest.raises(OSError, match="cannot listen on nowhere.invalid:0: "):
        make(host="nowhere.invalid").listen()


def test_drop_clients_goes_on(make):
    """Dropped clients are cut; new ones are served."""
    acceptor = make()
    acceptor.start()
    with connect(acceptor.address) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        acceptor.drop_clients()
        assert read_all(client) == b""
    with connect(acceptor.address) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"


def test_a_handler_that_fails_is_logged(make, caplog):
    """A bug in one client's thread ends that client alone, with a traceback in the log."""

    def fail(_sock, _address):
        raise RuntimeError("boom")

    acceptor = make(fail)
    acceptor.start()
    assert ask(acceptor.address, b"") == b""
    wait_until(lambda: "boom" in caplog.text)


def test_a_thread_that_does_not_end_is_named(make, caplog):
    """Stop keeps its deadline and warns about what is left."""
    release = threading.Event()
    acceptor = make(lambda _sock, _address: release.wait(10))
    acceptor.start()
    with connect(acceptor.address), caplog.at_level(logging.WARNING):
        wait_until(lambda: any(t.name.startswith("nsq-test-1") for t in threading.enumerate()))
        acceptor.stop(Deadline(0.05))
    release.set()
    assert "nsq-test-127.0.0.1:" in caplog.text
