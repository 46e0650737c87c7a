"""Colors of results on a terminal."""

import io

import pytest

from nsqclient.display import has_colors, paint_result

CHECK = ["worker", "json:loads", "--topic=t", "--channel=c", "--nsqd-tcp-address=127.0.0.1:1",
         "--check", "--log-level=fatal"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("line, painted", [
    ("OK     nsqd a:1", "\x1b[32mOK\x1b[0m     nsqd a:1"),
    ("WRONG  nsqd a:1", "\x1b[31;1mWRONG\x1b[0m  nsqd a:1"),
    ("NOTE   whether", "\x1b[33mNOTE\x1b[0m   whether"),
    ("consuming OK", "consuming OK"),
    ("OKAY", "OKAY"),
])
def test_the_result_of_a_line_has_a_color(monkeypatch, line, painted):
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "xterm")
    assert paint_result(line, Screen()) == painted


@pytest.mark.parametrize("stream, environ, expected", [
    (Screen(), {}, True),
    (Screen(), {"NO_COLOR": ""}, True),
    (Screen(), {"NO_COLOR": "1"}, False),
    (Screen(), {"TERM": "dumb"}, False),
    (io.StringIO(), {"TERM": "xterm"}, False),
])
def test_colors_are_for_terminals_and_obey_no_color(monkeypatch, stream, environ, expected):
    """An empty NO_COLOR counts as none, as https://no-color.org says."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert has_colors(stream) is expected
