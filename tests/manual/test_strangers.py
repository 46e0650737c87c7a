"""``tools/strangers.py``: a difference is a failure, and the page has the versions."""

import re
import sys

import pytest

from tests.support.docs.pages import ROOT, load


with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    strangers = load("tools/strangers.py")


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
