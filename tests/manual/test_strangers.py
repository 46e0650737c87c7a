"""``tools/strangers.py``: reports of other runners are read right, a difference is a failure."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.support.docs.pages import ROOT, load

JUNIT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" tests="5">
<testcase classname="tests.test_a" name="test_good" time="0.1" />
<testcase classname="tests.test_a" name="test_bad"><failure message="no">text</failure></testcase>
<testcase classname="tests.test_a" name="test_left"><skipped message="slow" /></testcase>
<testcase classname="tests.test_b" name="test_good"><error message="fixture">text</error></testcase>
<testcase classname="tests.test_b" name="test_twice" />
<testcase classname="tests.test_b" name="test_twice"><error message="teardown" /></testcase>
</testsuite></testsuites>"""

GO = [
    {"Action": "start", "Package": "p"},
    {"Action": "run", "Test": "TestGood"}, {"Action": "output", "Test": "TestGood", "Output": "x"},
    {"Action": "run", "Test": "TestGood/part"}, {"Action": "fail", "Test": "TestGood/part"},
    {"Action": "pass", "Test": "TestGood", "Elapsed": 0.1},
    {"Action": "run", "Test": "TestBad"}, {"Action": "fail", "Test": "TestBad"},
    {"Action": "run", "Test": "TestLeft"}, {"Action": "skip", "Test": "TestLeft"},
    {"Action": "run", "Test": "TestHangs"},
    {"Action": "fail", "Package": "p"},
]


with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    strangers = load("tools/strangers.py")


def test_a_report_of_pytest_is_read():
    """An error of a fixture is a failure; a failed teardown does not count twice."""
    result = strangers.read_junit(JUNIT)
    assert result.passed == {"tests.test_a.test_good"}
    assert result.failed == {"tests.test_a.test_bad", "tests.test_b.test_good",
                             "tests.test_b.test_twice"}
    assert str(result) == "1/4, 1 skipped"
    with pytest.raises(ValueError, match="no report of pytest"):
        strangers.read_junit("")


def test_the_events_of_go_test_are_read():
    """A test that has not ended has failed; subtests belong to their test."""
    lines = [json.dumps(event) for event in GO]
    result = strangers.read_go("\n".join(["# warning of the linker", *lines, "17", ""]))
    assert result == ({"TestGood"}, {"TestBad", "TestHangs"}, {"TestLeft"})
    assert str(strangers.read_go("")) == "0/0"


def test_a_report_of_mocha_is_read():
    """Tests with the same title are counted one by one."""
    tests = [{"fullTitle": title} for title in ("a", "b", "b", "c", "d")]
    report = {"tests": tests, "failures": [{"fullTitle": "c"}], "pending": [{"fullTitle": "d"}]}
    result = strangers.read_mocha(json.dumps(report))
    assert result == ({"a", "b", "b (2)"}, {"c"}, {"d"})
    for text in ("", "[]", "{}", '{"tests": [{}], "failures": [], "pending": []}'):
        with pytest.raises(ValueError, match="no report of mocha"):
            strangers.read_mocha(text)


def run_main(monkeypatch, tmp_path, *ends):
    """Run ``main`` with a suite that ends so: on the real, then on the embedded servers."""
    ends = list(ends)

    def run(environment, report):
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(strangers, "SUITES", [strangers.Suite("x", "1", run)])
    monkeypatch.setattr(strangers, "used_ports", lambda: [])
    monkeypatch.setattr(strangers, "server_folders", lambda: {"real": tmp_path,
                                                              "embedded": tmp_path})
    return strangers.main([])


def test_a_difference_is_exit_status_1(monkeypatch, tmp_path, capsys):
    """1 for a difference; where something is missing that is said, and only CI fails."""
    monkeypatch.delenv("CI", raising=False)
    good = strangers.Result(frozenset("ab"), frozenset())
    bad = strangers.Result(frozenset("a"), frozenset("b"))
    assert run_main(monkeypatch, tmp_path, good, good) == 0
    assert run_main(monkeypatch, tmp_path, bad, good) == 0
    assert run_main(monkeypatch, tmp_path, good, bad) == 1
    assert "x: 1 fail on the embedded servers only" in capsys.readouterr().out
    assert run_main(monkeypatch, tmp_path, good, ValueError("did not end")) == 1
    missing = strangers.NotRun("no node with npm found")
    assert run_main(monkeypatch, tmp_path, missing, bad) == 1
    assert run_main(monkeypatch, tmp_path, missing, missing) == 0
    assert "NOT RUN: no node with npm found" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert run_main(monkeypatch, tmp_path, missing, missing) == 1
    none = strangers.NoTests("its sdist has no tests")
    assert run_main(monkeypatch, tmp_path, none, none) == 0


def test_the_page_has_the_versions_that_are_pinned():
    page = (ROOT / "docs/topics/devserver.rst").read_text(encoding="utf-8")
    for suite in strangers.SUITES:
        assert re.search(rf"^{suite.name} {re.escape(suite.version)}\s", page, re.MULTILINE)
