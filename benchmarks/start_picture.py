"""Draws how long a query takes to plan its first batch. Pure: figures in, SVG out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 300, 60, 30, 70, 50
COLORS = ("#0a7d5a", "#b06a48")


def draw(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return an SVG: a curve for each storage, seconds over stored segments (logarithmic).

    Args:
        curves: storage -> (stored segments, seconds), in order.
    """
    points = [point for curve in curves.values() for point in curve]
    low, high = (math.log10(limit(stored for stored, _ in points)) for limit in (min, max))
    step = 10 ** math.floor(math.log10(max(seconds for _, seconds in points)))
    most = step * math.ceil(max(seconds for _, seconds in points) / step)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(stored: float, seconds: float) -> tuple[float, float]:
        return (LEFT + wide * (math.log10(stored) - low) / (high - low),
                TOP + tall * (1 - seconds / most))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Time of the'
        ' first batch over the number of stored segments">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" fill="#555">seconds until the first batch is planned, of a query'
        " over 100 shards with 10 new segments each</text>",
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end" fill="#555">stored'
        " segments</text>",
    ]
    for number in range(round(most / step) + 1):
        _, y = place(10 ** low, number * step)
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6eaee"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="10"'
            f' fill="#555">{number * step:g} s</text>']
    for stored in sorted({stored for stored, _ in points}):
        x, _ = place(stored, 0)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
                     f' font-size="10" fill="#555">{stored:,}</text>')
    for number, ((name, curve), color) in enumerate(zip(curves.items(), COLORS)):
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        parts += [
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{LEFT + 170 * number}" y="{TOP - 20}" fill="{color}" font-weight="600">'
            f"{escape(name)}</text>"]
    return "\n".join([*parts, "</svg>", ""])
