"""The benchmark: its picture shows the results, and the Go contenders are complete."""

import json
import re

from tests.support.docs.pages import ROOT, load


def test_the_picture_in_the_docs_is_drawn_from_the_results():
    results = json.loads((ROOT / "benchmarks/results.json").read_text())
    svg = (ROOT / "docs/images/benchmark.svg").read_text()
    assert results["conditions"].split(";")[0] in svg
    rates = {row["work"]: row["figures"] for row in results["rows"] if row["unit"] == "msg/s"}
    assert svg == load("benchmarks/picture.py").draw(rates, results["conditions"])
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
    texts = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)', svg)
    for x, y, attributes, text in texts:
        size = float((re.search(r'font-size="(\d+)"', attributes) or [0, 13])[1])
        length = 0.6 * size * len(text)
        left = float(x) - (length if "end" in attributes else 0)
        assert left >= 0 and left + length <= width and float(y) <= height - 2, text


def test_the_packages_that_the_go_contenders_import_exist():
    folder = ROOT / "benchmarks/go"
    imported = {name for path in folder.glob("*/main.go") for name in
                re.findall(r'"nsqclient.invalid/benchmarks/go/(\w+)"', path.read_text())}
    assert imported == {"layers"} and all(list((folder / name).glob("*.go")) for name in imported)
