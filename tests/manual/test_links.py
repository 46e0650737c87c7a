"""``tools/check_links.py``, which ``make docs`` runs over the pages it has built."""

import pytest

from tests.support.docs.pages import load

checker = load("tools/check_links.py")


def test_links_that_lead_somewhere_are_no_complaint(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b c.html").write_text('<p id="here"><a href="../a.html#top">up</a>')
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="sub/b%20c.html#here">x</a><a href="#top">y</a>'
        '<a href="https://nsq.io/x?y=1#z">z</a><a href="mailto:a@b.c">m</a>'
    )
    assert checker.main([str(tmp_path)]) == 0


@pytest.mark.parametrize("link", [
    "missing.html", "#missing", "b.html#missing", "../outside.html", "ftp://nsq.io/",
    "https:///nothing", "http://[bad", "https://nsq.io/a b",
])
def test_a_broken_link_is_named(tmp_path, capsys, link):
    (tmp_path / "b.html").write_text("<p>")
    (tmp_path / "a.html").write_text(f'<img src="b.html"><a href="{link}">x</a>')
    assert checker.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"a.html: {link}: ")
