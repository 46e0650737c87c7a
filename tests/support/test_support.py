"""The leak guard notices leaks."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.processes import CHECKOUT, LIMIT

needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


LEAKY = """
import pathlib, socket, subprocess, sys, threading
end, left = threading.Event(), []

def test_of_a_thread():
    left.append(threading.Thread(target=end.wait, name="nsq-left", daemon=True))
    left[-1].start()

def test_of_nothing(tmp_path):
    (tmp_path / "a").write_text("x")

def test_of_a_socket():
    left.append(socket.create_server(("127.0.0.1", 0)))

def test_of_a_process():
    left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_of_a_file(tmp_path):
    left.append((tmp_path / "left").open("w"))

def test_of_what_was_left():
    end.set()
    left[0].join()
    left[2].communicate(b"end")
    left[1].close(), left[3].close()
"""


@needs_proc
def test_the_test_that_leaves_something_is_named(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import leak_guard, pytest_collection\n"
        "from tests.support import leaks\nleaks.GRACE = 0.05\n")
    (tmp_path / "test_leaky.py").write_text(LEAKY)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
         "-p", "no:hypothesispytest", "--rootdir", str(tmp_path), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "300"}, cwd=tmp_path,
        capture_output=True, text=True, timeout=LIMIT, check=False)
    found = re.findall(r"^ERROR \S+::test_of_(\w+) - Failed: left behind: (\w+ \w+)", done.stdout,
                       re.MULTILINE)
    assert found == [("a_thread", "thread nsq"), ("a_socket", "1 socket"),
                     ("a_process", "child process"), ("a_file", "open file")], done.stdout
    assert "6 passed, 4 errors" in done.stdout
