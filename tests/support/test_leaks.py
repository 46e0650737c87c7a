"""The leak guard sees what it must see."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading

import pytest

from tests.support import leaks
from tests.support.leaks import find_leaks, take_snapshot


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests leave behind does not go away by itself: do not wait for it."""
    monkeypatch.setattr(leaks, "GRACE", 0.05)


def test_a_test_that_leaves_nothing_has_no_leaks():
    """A test that leaves nothing has no leaks."""
    assert find_leaks(take_snapshot()) == []


def test_a_running_thread_is_a_leak_until_it_ends():
    """A running thread of ours is a leak until it ends; other threads are not looked at."""
    before = take_snapshot()
    end = threading.Event()
    ours = threading.Thread(target=end.wait, name="nsq-reader-here:1", daemon=True)
    other = threading.Thread(target=end.wait, name="other", daemon=True)
    ours.start()
    other.start()
    assert find_leaks(before) == ["thread nsq-reader-here:1"]
    end.set()
    ours.join(10)
    other.join(10)
    assert find_leaks(before) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_an_open_socket_is_described():
    """An open socket is a leak until it is closed."""
    before = take_snapshot()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        leak, = find_leaks(before)
        assert "1 socket" in leak
        assert str(listener.getsockname()[1]) in leak
    assert find_leaks(before) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_child_process_is_named():
    """A child is a leak until it was waited for, even when it has ended."""
    before = take_snapshot()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    leak, = find_leaks(before)
    assert leak.startswith(f"child process {child.pid}: ")
    child.communicate(b"\n")
    assert find_leaks(before) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_socket_to_a_foreign_port_is_nobodys_leak(monkeypatch):
    """The JVM of the session has connections that come and go as they please."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = take_snapshot()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert "1 socket(s)" in find_leaks(before)[0]
            monkeypatch.setattr(leaks, "FOREIGN_PORTS", {port})
            assert find_leaks(before) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_connection_that_was_reset_is_the_sessions(monkeypatch):
    """The JVM resets connections of py4j that are idle; what is paired or listens is still ours."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = take_snapshot()
        with socket.create_connection(server.getsockname()) as end:
            theirs, _ = server.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            with pytest.raises(ConnectionResetError):
                end.recv(1)
            assert "1 socket(s)" in find_leaks(before)[0]
            monkeypatch.setattr(leaks, "FOREIGN_PORTS", {1})
            assert find_leaks(before) == []
            for ours in (*socket.socketpair(), socket.create_server(("127.0.0.1", 0))):
                with ours:
                    assert "socket(s)" in find_leaks(before)[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_connection_of_a_foreign_process_is_not_a_leak(monkeypatch):
    """The JVM of the session connects to us when a task ends."""
    program = ("import socket, sys; end = socket.create_connection(('127.0.0.1', sys.argv[1]));"
               " sys.stdin.read()")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        child = subprocess.Popen([sys.executable, "-c", program, port], stdin=subprocess.PIPE)
        before = take_snapshot()
        with server.accept()[0]:
            assert "1 socket(s)" in find_leaks(before)[0]
            monkeypatch.setattr(leaks, "FOREIGN_PROCESSES", {child.pid})
            assert find_leaks(before) == []
        child.communicate()
