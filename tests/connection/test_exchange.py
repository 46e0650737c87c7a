"""exchange() and receive(): the Python and the compiled implementation."""

import contextlib
import errno
import os
import signal
import socket
import struct
import threading
import time

import pytest

from nsqclient.connection.exchange import (
    RECEIVE_SIZE, exchange_in_python, receive_in_python,
)
from tests.support.native import FORMS
from tests.support.waiting import wait_until

WAIT = 20.0
#: Larger than the send and receive buffers of a socket pair.
LARGE = bytes(range(256)) * 40_000


@pytest.fixture(params=FORMS)
def exchange(request):
    """The Python and the compiled exchange()."""
    return exchange_in_python if request.param is None else request.param.exchange


@pytest.fixture
def pair():
    """A non-blocking socket and its peer, which blocks."""
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        peer.settimeout(WAIT)
        yield ours, peer


@contextlib.contextmanager
def beside(work, *args):
    """Call ``work`` in another thread during the block."""
    thread = threading.Thread(target=work, args=args)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT)
        assert not thread.is_alive()


@contextlib.contextmanager
def on_signal(handler):
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, former)


def signal_main_thread():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def read_all(peer, size):
    data = b""
    while len(data) < size:
        data += peer.recv(size - len(data))
    return data


def fill(sock):
    """Write until the kernel accepts no more; return the number of bytes written."""
    size = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            size += sock.send(b"x" * 65536)
    return size


def reset(peer):
    """Close the socket so that the peer gets an RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        ours.setblocking(False)
        return ours, server.accept()[0]


def test_a_command_is_written_and_the_first_answer_returned(exchange, pair):
    ours, peer = pair

    def serve():
        assert read_all(peer, 3) == b"PUB"
        peer.sendall(b"OK")

    with beside(serve):
        assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (3, b"OK")


def test_only_what_follows_start_is_written(exchange, pair):
    ours, peer = pair
    peer.sendall(b"OK")
    assert exchange(ours.fileno(), b"PUB", 2, WAIT) == (3, b"OK")
    assert peer.recv(10) == b"B"
    peer.sendall(b"OK")
    assert exchange(ours.fileno(), b"PUB", 3, WAIT) == (3, b"OK")
    peer.settimeout(0)
    with pytest.raises(BlockingIOError):
        peer.recv(10)


def test_when_the_seconds_are_over_the_answer_is_none(exchange, pair):
    ours, peer = pair
    start = time.monotonic()
    assert exchange(ours.fileno(), b"PUB", 0, 0.05) == (3, None)
    assert 0.05 <= time.monotonic() - start < WAIT
    assert exchange(ours.fileno(), b"PUB", 3, 0) == (3, None)
    assert exchange(ours.fileno(), b"PUB", 3, -1) == (3, None)
    peer.sendall(b"late")
    assert exchange(ours.fileno(), b"PUB", 3, 0) == (3, b"late")


@pytest.mark.parametrize("seconds", [1e9, 1e300, float("inf")])
def test_seconds_may_be_any_number(exchange, pair, seconds):
    ours, peer = pair
    peer.sendall(b"OK")
    assert exchange(ours.fileno(), b"PUB", 0, seconds) == (3, b"OK")


def test_a_large_command_is_written_while_the_peer_reads(exchange, pair):
    ours, peer = pair
    read = []

    def serve():
        read.append(read_all(peer, len(LARGE)))
        peer.sendall(b"OK")

    with beside(serve):
        assert exchange(ours.fileno(), LARGE, 0, WAIT) == (len(LARGE), b"OK")
    assert read == [LARGE]


def test_a_write_whose_time_is_over_goes_on_where_it_ended(exchange, pair):
    ours, peer = pair
    sent, answer = exchange(ours.fileno(), LARGE, 0, 0.01)
    assert 0 < sent < len(LARGE) and answer is None
    assert exchange(ours.fileno(), LARGE, sent, 0.01) == (sent, None)
    read = []

    def serve():
        read.append(read_all(peer, len(LARGE)))
        peer.sendall(b"OK")

    with beside(serve):
        assert exchange(ours.fileno(), LARGE, sent, WAIT) == (len(LARGE), b"OK")
    assert read == [LARGE]


def test_an_answer_may_come_before_the_command_is_written(exchange, pair):
    ours, peer = pair
    peer.sendall(b"E_BAD_BODY")
    sent, answer = exchange(ours.fileno(), LARGE, 0, WAIT)
    assert sent < len(LARGE) and answer == b"E_BAD_BODY"


def test_no_more_than_4096_bytes_are_returned(exchange, pair):
    ours, peer = pair
    peer.sendall(b"x" * 5000)
    assert exchange(ours.fileno(), b"", 0, WAIT) == (0, b"x" * 4096)
    assert exchange(ours.fileno(), b"", 0, WAIT) == (0, b"x" * 904)


def test_the_end_of_the_stream_is_an_empty_answer(exchange, pair):
    ours, peer = pair
    peer.shutdown(socket.SHUT_WR)
    assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (3, b"")
    assert peer.recv(10) == b"PUB"


def test_after_a_failed_write_what_was_sent_before_is_the_answer(exchange):
    ours, peer = tcp_pair()
    with ours:
        peer.sendall(b"E_BAD_TOPIC")
        reset(peer)
        assert exchange(ours.fileno(), b"PUB", 0, WAIT)[1] in (b"E_BAD_TOPIC", errno.ECONNRESET)
        # The first call may have seen the bytes before the RST; now the write fails.
        sent, answer = exchange(ours.fileno(), b"PUB", 0, WAIT)
        assert sent == 0 and answer in (errno.EPIPE, errno.ECONNRESET)


def test_a_write_to_a_closed_stream_takes_the_error_that_was_sent(exchange, pair):
    ours, peer = pair
    peer.sendall(b"E_BAD_TOPIC")
    ours.shutdown(socket.SHUT_WR)
    assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (0, b"E_BAD_TOPIC")
    assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (0, errno.EPIPE)


def test_a_reset_while_it_waits_is_an_errno(exchange):
    ours, peer = tcp_pair()

    def serve():
        assert peer.recv(10) == b"PUB"
        reset(peer)

    with ours, beside(serve):
        assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (3, errno.ECONNRESET)


@pytest.mark.parametrize("command", [b"PUB", b""])
def test_a_closed_descriptor_is_an_errno(exchange, pair, command):
    ours, _ = pair
    number = os.dup(ours.fileno())
    os.close(number)
    for fd in (-1, number):
        assert exchange(fd, command, 0, WAIT) == (0, errno.EBADF)


def test_what_is_no_socket_is_an_errno(exchange, tmp_path):
    with open(tmp_path / "file", "wb") as file:
        _, answer = exchange(file.fileno(), b"", 0, WAIT)
    assert isinstance(answer, int)


def test_a_signal_handler_runs_and_the_call_goes_on(exchange, pair):
    ours, peer = pair
    calls = []

    def serve():
        assert peer.recv(10) == b"PUB"
        for n in range(1, 4):
            signal_main_thread()
            wait_until(lambda: len(calls) == n)
        peer.sendall(b"OK")

    with on_signal(lambda *_: calls.append(1)), beside(serve):
        assert exchange(ours.fileno(), b"PUB", 0, WAIT) == (3, b"OK")


def test_signals_do_not_prolong_the_time(exchange, pair):
    ours, _ = pair
    done = threading.Event()

    def disturb():
        while not done.is_set():
            signal_main_thread()

    with on_signal(lambda *_: None), beside(disturb):
        try:
            start = time.monotonic()
            assert exchange(ours.fileno(), b"PUB", 0, 0.1) == (3, None)
            assert time.monotonic() - start < WAIT / 2
        finally:
            done.set()


@pytest.mark.parametrize("error", [
    TimeoutError(), TimeoutError(errno.ETIMEDOUT, "a time limit"), OSError(errno.EPIPE, "no"),
    BlockingIOError(errno.EAGAIN, "no"), KeyboardInterrupt(), ValueError()], ids=repr)
@pytest.mark.parametrize("command", [b"PUB", LARGE], ids=["waiting", "writing"])
def test_what_a_signal_handler_raises_is_raised(exchange, pair, error, command):
    ours, peer = pair

    def handler(*_):
        raise error

    def serve():
        assert peer.recv(3) == b"PUB" or command is LARGE
        signal_main_thread()

    with on_signal(handler), beside(serve), pytest.raises(type(error)) as caught:
        exchange(ours.fileno(), command, 0, WAIT)
    assert caught.value is error


@pytest.mark.parametrize("command", [b"PUB", LARGE], ids=["waiting", "writing"])
def test_a_child_forked_by_a_signal_handler_leaves_the_connection_alone(exchange, pair, command):
    """The child neither writes to nor reads from its parent's connection."""
    ours, peer = pair
    parent, children = os.getpid(), []

    def handler(*_):
        child = os.fork()
        if child:
            children.append(child)

    def serve():
        first = peer.recv(3)
        signal_main_thread()
        wait_until(lambda: bool(children))
        assert os.waitpid(children[0], 0)[1] == 0
        read.append(first + read_all(peer, len(command) - len(first)))
        peer.sendall(b"OK")

    read = []
    with on_signal(handler), beside(serve):
        try:
            answer = exchange(ours.fileno(), command, 0, WAIT)
        finally:
            if os.getpid() != parent:
                os._exit(answer[1] != errno.EBADF)
    assert answer == (len(command), b"OK")
    assert read == [command]


def test_a_thread_that_shuts_it_down_ends_the_call_and_no_other_file_is_touched(exchange, tmp_path):
    """The descriptor is not reused before the waiting thread closes it."""
    stop = threading.Event()
    names = [tmp_path / str(n) for n in range(20)]

    def open_files():
        while not stop.is_set():
            for name in names:
                with open(name, "a+b"):
                    pass

    with beside(open_files):
        try:
            for _ in range(50):
                ours, peer = tcp_pair()
                with ours, peer:
                    fill(ours)

                    def shut_down(sock=ours):
                        sock.shutdown(socket.SHUT_RDWR)

                    with beside(shut_down):
                        sent, answer = exchange(ours.fileno(), LARGE, 0, WAIT)
                    assert answer in (b"", errno.EPIPE, errno.ECONNRESET) and sent < len(LARGE)
        finally:
            stop.set()
    assert all(name.stat().st_size == 0 for name in names if name.exists())


# -- receive()


@pytest.fixture(params=FORMS)
def receive(request):
    """The Python and the compiled receive()."""
    return receive_in_python if request.param is None else request.param.receive


def test_received_bytes_are_returned_up_to_a_size(receive, pair):
    ours, peer = pair
    peer.sendall(b"x" * (RECEIVE_SIZE + 1))
    assert receive(ours.fileno(), float("inf")) == b"x" * RECEIVE_SIZE
    assert receive(ours.fileno(), 0) == b"x"
    assert receive(ours.fileno(), 0) is receive(ours.fileno(), 0.02) is None
    with beside(peer.sendall, b"late"):
        assert receive(ours.fileno(), WAIT) == b"late"


def test_the_end_of_what_is_received_is_an_empty_answer_or_an_errno(receive, pair):
    ours, peer = pair
    with beside(peer.shutdown, socket.SHUT_WR):
        assert receive(ours.fileno(), WAIT) == b""
    assert receive(-1, WAIT) == errno.EBADF
    client, server = tcp_pair()
    with client, beside(reset, server):
        assert receive(client.fileno(), WAIT) == errno.ECONNRESET


def test_a_signal_handler_runs_while_bytes_are_awaited(receive, pair):
    ours, peer = pair
    with on_signal(lambda *_: peer.sendall(b"x")), beside(signal_main_thread):
        assert receive(ours.fileno(), WAIT) == b"x"
