"""The picture of the benchmark: bars in proportion, and every text inside."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PICTURE = CHECKOUT / "docs" / "images" / "benchmark.svg"


def load():
    """Import benchmarks/picture.py, which is in no package."""
    spec = importlib.util.spec_from_file_location(
        "benchmarks_picture", CHECKOUT / "benchmarks" / "picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bars(svg):
    """Width and ratio of each bar."""
    widths = re.findall(r'<rect x="210" y="[\d.]+" width="([\d.]+)"', svg)
    ratios = re.findall(r">([\d.]+) x \(", svg)
    return list(zip(map(float, widths), map(float, ratios), strict=True))


def assert_inside(svg):
    """No text or bar is outside of the picture, and no bar is shorter than it should be."""
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)', svg)
    for x, y, attributes, text in texts:
        size = float((re.search(r'font-size="(\d+)"', attributes) or [0, 13])[1])
        length = 0.6 * size * len(text)
        left = float(x) - (length if "end" in attributes else 0)
        assert left >= 0 and left + length <= width and float(y) <= height - 2, text
    found = bars(svg)
    longest = max(found, key=lambda bar: bar[1])
    for length, ratio in found:
        assert length == pytest.approx(max(1.0, ratio / longest[1] * longest[0]), abs=3)


@pytest.mark.parametrize("fast", [1.5, 13.11, 400.0])
def test_every_bar_and_label_fits(fast):
    """However fast one of them is."""
    svg = load().draw({"consume": {"go-nsq": 1000.0, "nsqclient": 1000.0 * fast},
                       "publish": {"go-nsq": 9e9, "pynsq": 9e9}}, "conditions, " * 30)
    assert_inside(svg)


def test_the_picture_in_the_docs_is_drawn_from_the_results():
    """And nothing in it is cut."""
    results = json.loads((CHECKOUT / "benchmarks" / "results.json").read_text())
    svg = PICTURE.read_text()
    assert_inside(svg)
    assert results["conditions"].split(";")[0] in svg
    rates = {row["work"]: row["figures"] for row in results["rows"] if row["unit"] == "msg/s"}
    assert svg == load().draw(rates, results["conditions"])
