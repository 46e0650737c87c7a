"""Looks at the built manual in Chromium: ``python tools/check_site.py docs/_build/html PICTURES``.

Each page is opened as on a phone and as on a desk, light and dark. No page may be wider than its
window: a table or a block of code scrolls by itself. Each page must have a link to the reference,
a field to search in, and a button that copies on each block of code. Prints the faults; the exit
status is 1 if there are any. Pictures of some pages are put into the folder PICTURES.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from tests.support.browser.browser import Browser, Page, find_chromium  # noqa: E402  path is set

#: Width and height of a window, in pixels.
PHONE, DESK = (360, 740), (1360, 900)
#: Pages of which there are pictures: a table of many columns, code, drawings, an API.
SHOWN = ("index", "quickstart", "reference/config", "topics/architecture", "topics/security",
         "reference/consumer", "stability")
#: Made by Sphinx, of code or of names.
UNCHECKED = ("_modules", "genindex.html", "py-modindex.html", "search.html")
TOO_WIDE = """
[document.documentElement].filter(e => e.scrollWidth > e.clientWidth)
  .map(e => `${e.scrollWidth} pixels wide, on a phone of ${e.clientWidth}`)
"""
MISSING = """
[["a[href$='reference/index.html'], a[href$='reference/'], a[href='#']", "link to the reference"],
 ["input[type=search], input.sidebar-search", "search field"]]
  .filter(([selector]) => !document.querySelector(selector)).map(([, name]) => "no " + name)
  .concat([...document.querySelectorAll("div.highlight")]
    .filter(e => e.querySelector("pre") && !e.querySelector("button.copybtn"))
    .slice(0, 1).map(() => "a block of code without a button that copies"))
"""


def open_as(page: Page, path: Path, size: tuple[int, int], theme: str) -> None:
    """Open a page in a window of a size, in a theme."""
    page.resize(*size, phone=size == PHONE)
    page.prefer(theme)
    page.goto(path.as_uri())


def look_at(page: Page, folder: Path, pictures: Path) -> list[str]:
    """Open every page of a folder; return the faults."""
    found: list[str] = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder)
        if name.parts[0] in UNCHECKED or "_static" in name.parts:
            continue
        open_as(page, path, PHONE, "light")
        found += [f"{name}: {what}" for what in page.eval(TOO_WIDE) + page.eval(MISSING)]
        if name.with_suffix("").as_posix() not in SHOWN:
            continue
        stem = "-".join(name.with_suffix("").parts)
        for kind, size, theme in (
            ("phone", PHONE, "light"), ("phone-dark", PHONE, "dark"),
            ("light", DESK, "light"), ("dark", DESK, "dark"),
        ):
            open_as(page, path, size, theme)
            if size == PHONE:  # the wide element: a table, or else a drawing
                page.eval("document.querySelector('article table, svg.layers')"
                          "?.scrollIntoView({behavior: 'instant'})")
            page.screenshot(pictures / f"{stem}-{kind}.png")
    return found


def main(folder: Path, pictures: Path) -> int:
    """Check all pages of a folder; return the exit status."""
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium: the pages were not looked at")
        return 0
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(chromium, Path(profile))
        try:
            found = look_at(browser.page(), folder.resolve(), pictures)
        finally:
            browser.close()
    for line in found:
        print(line)
    print(f"{len(found)} faults; pictures are in {pictures}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
