"""Colors of results on a terminal."""

from __future__ import annotations

import io

import pytest

from nsqclient.cli import main
from nsqclient.cli.terminal import paint_result

CHECK = ["worker", "json:loads", "--topic=t", "--channel=c", "--nsqd-tcp-address=127.0.0.1:1",
         "--check", "--log-level=fatal"]


@pytest.mark.parametrize("line, painted", [
    ("OK     nsqd a:1", "\x1b[32mOK\x1b[0m     nsqd a:1"),
    ("WRONG  nsqd a:1", "\x1b[31;1mWRONG\x1b[0m  nsqd a:1"),
    ("NOTE   whether", "\x1b[33mNOTE\x1b[0m   whether"),
    ("consuming OK", "consuming OK"),
    ("OKAY", "OKAY"),
])
def test_the_result_of_a_line_has_a_color(line, painted):
    """Only the first word, and only of a check."""
    assert paint_result(line) == painted


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """As a terminal says."""
        return True


@pytest.mark.parametrize("output, no_color, begins", [
    (Screen, "", "\x1b[32mOK\x1b[0m "), (Screen, "1", "OK "), (io.StringIO, "", "OK "),
])
def test_the_check_of_the_worker_has_colors_on_a_terminal(monkeypatch, output, no_color, begins):
    """NO_COLOR is obeyed."""
    stderr = output()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    assert main(CHECK) == 1
    right, wrong = stderr.getvalue().splitlines()
    assert right.startswith(begins) and "WRONG" in wrong
