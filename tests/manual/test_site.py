"""The site of the manual: how Read the Docs builds it, and what ``make check-site`` finds."""

from pathlib import Path

import pytest
import yaml

from tests.support.browser.browser import Browser, chromium
from tests.support.docs.pages import ROOT, load


def test_read_the_docs_builds_what_make_docs_builds() -> None:
    found = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text("utf-8"))
    assert found["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert found["python"]["install"] == [
        {"method": "pip", "path": ".", "extra_requirements": ["docs"]}]


@pytest.mark.external
@pytest.mark.parametrize("body, found", [
    ("<pre style='overflow: auto'>" + "x" * 500 + "</pre>", []),
    ("<pre>" + "x" * 500 + "</pre>", ["page.html: 3"]),
    ("<div class='highlight'><pre>x</pre></div>", ["page.html: a block of code without a button"]),
])
def test_a_page_that_is_wider_than_a_phone_is_found(
    tmp_path: Path, body: str, found: list[str]
) -> None:
    """A block that scrolls by itself is none; a block of code has a button that copies."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "page.html").write_text(
        "<!doctype html><meta name=viewport content='width=device-width'><article>"
        f"<a href='reference/index.html'>r</a><input type=search>{body}</article>")
    browser = Browser(chromium(), tmp_path)
    try:
        lines = load("tools/check_site.py").look_at(browser.page(), site, tmp_path)
    finally:
        browser.close()
    assert len(lines) == len(found) and all(map(str.startswith, lines, found))
