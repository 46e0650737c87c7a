"""``tools/strangers.py``: what other runners report is read right, and the table shows it."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import sys
import types

import pytest

from tests.support.docs.pages import ROOT

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


@pytest.fixture(scope="module")
def strangers() -> types.ModuleType:
    """Return the tool as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        spec = importlib.util.spec_from_file_location("strangers", ROOT / "tools/strangers.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return module


def test_a_report_of_pytest(strangers):
    """An error of a fixture is a failure; a failed teardown does not count twice."""
    result = strangers.read_junit(JUNIT)
    assert result.passed == {"tests.test_a.test_good"}
    assert result.failed == {"tests.test_a.test_bad", "tests.test_b.test_good",
                             "tests.test_b.test_twice"}
    assert str(result) == "1/4, 1 skipped"
    with pytest.raises(ValueError, match="no report of pytest"):
        strangers.read_junit("")


def test_the_events_of_go_test(strangers):
    """A test that has not ended has failed; subtests belong to their test."""
    lines = [json.dumps(event) for event in GO]
    result = strangers.read_go("\n".join(["# warning of the linker", *lines, "17", ""]))
    assert result == ({"TestGood"}, {"TestBad", "TestHangs"}, {"TestLeft"})
    assert str(strangers.read_go("")) == "0/0"


def test_a_report_of_mocha(strangers):
    """Tests with the same title are counted one by one."""
    tests = [{"fullTitle": title} for title in ("a", "b", "b", "c", "d")]
    report = {"tests": tests, "failures": [{"fullTitle": "c"}], "pending": [{"fullTitle": "d"}]}
    result = strangers.read_mocha(json.dumps(report))
    assert result == ({"a", "b", "b (2)"}, {"c"}, {"d"})
    for text in ("", "[]", "{}", '{"tests": [{}], "failures": [], "pending": []}'):
        with pytest.raises(ValueError, match="no report of mocha"):
            strangers.read_mocha(text)


def test_the_table_and_what_is_worse(strangers):
    """Only a test that passes on the real servers can be worse on the embedded ones."""
    good = strangers.Result(frozenset("ab"), frozenset("c"))
    bad = strangers.Result(frozenset("a"), frozenset("bc"))
    rows = [strangers.Row("x", "1", {"real": good, "embedded": bad}),
            strangers.Row("long-name", "2", {"real": "NOT RUN: no Go found", "embedded": good})]
    assert strangers.table(rows).splitlines()[3:5] == [
        "x 1          2/3                   1/3", "long-name 2  NOT RUN: no Go found  2/3"]
    assert rows[0].worse() == {"b"} and rows[1].worse() == {"c"}
    assert not strangers.Row("x", "1", {"real": bad, "embedded": good}).worse()
    assert strangers.Row("x", "1", {"real": bad, "embedded": "NO RESULT: x"}).worse() == {"a"}
    assert not strangers.Row("x", "1", {"real": "NOT RUN: x", "embedded": "NOT RUN: x"}).worse()


def run_main(strangers, monkeypatch, tmp_path, *ends):
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


def test_the_exit_status(strangers, monkeypatch, tmp_path, capsys):
    """1 for a difference; where something is missing that is said, and only CI fails."""
    monkeypatch.delenv("CI", raising=False)
    good = strangers.Result(frozenset("ab"), frozenset())
    bad = strangers.Result(frozenset("a"), frozenset("b"))
    assert run_main(strangers, monkeypatch, tmp_path, good, good) == 0
    assert run_main(strangers, monkeypatch, tmp_path, bad, bad) == 0
    assert run_main(strangers, monkeypatch, tmp_path, good, bad) == 1
    assert "x: 1 fail on the embedded servers only" in capsys.readouterr().out
    assert run_main(strangers, monkeypatch, tmp_path, good, ValueError("did not end")) == 1
    missing = strangers.NotRun("no node with npm found")
    assert run_main(strangers, monkeypatch, tmp_path, missing, missing) == 0
    assert "NOT RUN: no node with npm found" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert run_main(strangers, monkeypatch, tmp_path, missing, missing) == 1
    none = strangers.NoTests("its sdist has no tests")
    assert run_main(strangers, monkeypatch, tmp_path, none, none) == 0


def test_a_port_in_use_and_an_unknown_suite(strangers, monkeypatch, capsys):
    """Said before anything is fetched."""
    assert strangers.main(["nsqpy"]) == 2
    assert "no suite 'nsqpy': there are pynsq, ansq" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(strangers, "PORTS", (port,))
        assert strangers.main([]) == 2
    assert f"port {port} is in use" in capsys.readouterr().err


def test_a_command_that_fails_is_not_run(strangers):
    """With the last line that it wrote."""
    assert strangers.run([sys.executable, "-c", "print(1)"]) == "1\n"
    with pytest.raises(strangers.NotRun, match="failed: no network"):
        strangers.run([sys.executable, "-c", "print('no network'); raise SystemExit(1)"])
    with pytest.raises(strangers.NotRun, match="No such file"):
        strangers.run(["/no/such/program"])


def test_the_page_has_the_versions_that_are_pinned(strangers):
    """The table on the page is that of the suites which are run."""
    page = (ROOT / "docs/topics/devserver.rst").read_text(encoding="utf-8")
    for suite in strangers.SUITES:
        assert re.search(rf"^{suite.name} {re.escape(suite.version)}\s", page, re.MULTILINE)
