"""Checks the links of built HTML without a network: ``python tools/check_links.py FOLDER``.

A link inside the folder must lead to a file, and its anchor to an element there. Of a link to
elsewhere only the form is checked: http or https, a host, no spaces. Prints broken
links; the exit status is 1 if there are any.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Makes pages of its own, without ids that a link could name.
UNCHECKED = "_modules"


class _Page(HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and the id of an element."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def complaints(folder: Path) -> list[str]:
    """Return one line for each broken link below a folder."""
    folder = folder.resolve()
    pages = {
        path: _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))
    }
    found = []
    for path, page in pages.items():
        if UNCHECKED in path.parts:
            continue
        for link in dict.fromkeys(page.links):
            if reason := _fault(link, path, pages):
                found.append(f"{path.relative_to(folder)}: {link}: {reason}")
    return found


def _fault(link: str, page: Path, pages: dict[Path, _Page]) -> str:
    try:
        parts = urlsplit(link)
        host = parts.hostname
    except ValueError as exc:
        return str(exc)
    if " " in link:
        return "has a space"
    if parts.scheme == "mailto":
        return ""
    if parts.scheme or parts.netloc:
        good = parts.scheme in ("http", "https") and host
        return "" if good else "neither http nor https with a host"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return "no such file"
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such anchor"
    return ""


def main(arguments: list[str]) -> int:
    """Check one folder; return the exit status."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python tools/check_links.py FOLDER", file=sys.stderr)
        return 2
    found = complaints(Path(arguments[0]))
    print("\n".join(found) if found else "all links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
