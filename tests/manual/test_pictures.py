"""The drawings of the manual: well-formed, described, and readable on light and dark pages."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.docs.pages import PAGES, ROOT, read

DRAWINGS = sorted((ROOT / "docs/images").glob("*.svg"))
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_has_a_background_and_descriptions(path: Path) -> None:
    """Its first rectangle covers it: the page behind may be dark. Each use has an ``:alt:``."""
    root = ElementTree.parse(path).getroot()
    assert root.get("aria-label")
    _, _, width, height = root.attrib["viewBox"].split()
    background = next(root.iter(f"{_SVG}rect"))
    assert (background.get("width"), background.get("height")) == (width, height)
    uses = [text[found.end():].lstrip("\n").split("\n")[0] for text in map(read, PAGES)
            for found in re.finditer(rf"\.\. image:: \S*{re.escape(path.name)}\n", text)]
    assert uses and all(re.match(r" +:alt: \w", line) for line in uses)
