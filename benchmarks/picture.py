"""Draws the rates of all contenders as bars, relative to go-nsq. Pure: figures in, SVG out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, LEFT, MARGIN = 860, 210, 10
BAR, GAP, TOP = 12, 14, 74
COLORS = {"nsqclient": "#0a7d5a", "go-nsq": "#5b6b7b", "gnsq": "#b08948", "pynsq": "#b06a48"}
#: Size of the small texts, and the width that a character of them takes at most.
SMALL = 10
CHARACTER = 0.62 * SMALL


def draw(rates: Mapping[str, Mapping[str, float]], caption: str) -> str:
    """Return an SVG: for each work one bar for each client, go-nsq being 1.

    The longest bar and its label have space: none is cut.
    """
    bars = {
        work: {name: (figures[name] / figures["go-nsq"], figures[name])
               for name in COLORS if name in figures}
        for work, figures in rates.items() if figures.get("go-nsq")
    }
    # Each bar with its label must end before the margin; the shortest unit holds for all.
    unit = min(
        (WIDTH - LEFT - MARGIN - 5 - CHARACTER * len(_label(ratio, rate))) / ratio
        for found in bars.values() for ratio, rate in found.values()
    )
    parts: list[str] = []
    y = TOP
    for work, found in bars.items():
        middle = y + len(found) * BAR / 2 + 4
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{escape(work)}</text>'
        )
        for name, (ratio, rate) in found.items():
            parts += _bar(name, ratio, rate, y, unit)
            y += BAR
        y += GAP
    line = LEFT + unit
    lines = textwrap.wrap(caption, int((WIDTH - 2 * MARGIN) / CHARACTER))
    height = y + 12 + 14 * len(lines)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img"'
        ' aria-label="Rates of NSQ clients relative to go-nsq">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="22" font-size="16" font-weight="600">'
        "messages/s, relative to go-nsq</text>",
        *_legend(),
        f'<line x1="{line:.0f}" x2="{line:.0f}" y1="{TOP - 8}" y2="{y - GAP + 4}" stroke="#5b6b7b"'
        ' stroke-dasharray="3 3"/>',
    ]
    foot = [
        f'<text x="{MARGIN}" y="{y + 14 * (number + 1)}" font-size="{SMALL}" fill="#555">'
        f"{escape(text)}</text>" for number, text in enumerate(lines)
    ]
    return "\n".join([*head, *parts, *foot, "</svg>", ""])


def _legend() -> Sequence[str]:
    lines, x = [], MARGIN
    for name, color in COLORS.items():
        lines.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{color}"/>')
        lines.append(f'<text x="{x + 17}" y="47">{name}</text>')
        x += 105
    return lines


def _label(ratio: float, rate: float) -> str:
    return f"{ratio:.2f} x ({rate:,.0f})"


def _bar(name: str, ratio: float, rate: float, y: float, unit: float) -> Sequence[str]:
    width = max(1.0, ratio * unit)
    return (
        f'<rect x="{LEFT}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}"'
        f' fill="{COLORS[name]}"/>',
        f'<text x="{LEFT + width + 5:.1f}" y="{y + BAR - 2}" font-size="{SMALL}"'
        ' paint-order="stroke" stroke="#ffffff" stroke-width="3">'
        f"{_label(ratio, rate)}</text>",
    )
