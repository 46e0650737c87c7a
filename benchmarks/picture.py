"""Draws the rates of all contenders as bars, relative to go-nsq. Pure: figures in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 860, 210, 90
BAR, GAP, TOP = 12, 14, 74
COLORS = {"nsqclient": "#0a7d5a", "go-nsq": "#5b6b7b", "gnsq": "#b08948", "pynsq": "#b06a48"}
#: Longer bars are cut: one work must not make all others unreadable.
LONGEST = 6.0
UNIT = (WIDTH - LEFT - RIGHT) / LONGEST


def draw(rates: Mapping[str, Mapping[str, float]], caption: str) -> str:
    """Return an SVG: for each work one bar for each client, go-nsq being 1."""
    parts: list[str] = []
    y = TOP
    for work, figures in rates.items():
        base = figures.get("go-nsq")
        names = [name for name in COLORS if name in figures]
        if not base or not names:
            continue
        middle = y + len(names) * BAR / 2 + 4
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{escape(work)}</text>'
        )
        for name in names:
            parts += _bar(name, figures[name] / base, figures[name], y)
            y += BAR
        y += GAP
    line = LEFT + UNIT
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 24}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img"'
        ' aria-label="Rates of NSQ clients relative to go-nsq">',
        f'<rect width="{WIDTH}" height="{y + 24}" fill="#ffffff"/>',
        '<text x="10" y="22" font-size="16" font-weight="600">'
        "messages/s, relative to go-nsq</text>",
        *_legend(),
        f'<line x1="{line:.0f}" x2="{line:.0f}" y1="{TOP - 8}" y2="{y}" stroke="#5b6b7b"'
        ' stroke-dasharray="3 3"/>',
    ]
    foot = f'<text x="10" y="{y + 14}" font-size="10" fill="#555">{escape(caption)}</text></svg>'
    return "\n".join([*head, *parts, foot, ""])


def _legend() -> Sequence[str]:
    lines, x = [], 10
    for name, color in COLORS.items():
        lines.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{color}"/>')
        lines.append(f'<text x="{x + 17}" y="47">{name}</text>')
        x += 105
    return lines


def _bar(name: str, ratio: float, rate: float, y: float) -> Sequence[str]:
    width = max(1.0, min(ratio, LONGEST) * UNIT)
    return (
        f'<rect x="{LEFT}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}"'
        f' fill="{COLORS[name]}"/>',
        f'<text x="{LEFT + width + 5:.1f}" y="{y + BAR - 2}" font-size="10">'
        f"{ratio:.2f} x ({rate:,.0f})</text>",
    )
