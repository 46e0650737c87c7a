"""Draws counts as horizontal bars. Pure: figures in, SVG out."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP = 720, 170, 70, 56
BAR, GAP = 18, 6


def draw(counts: Sequence[tuple[str, int]], title: str, caption: str) -> str:
    """Return an SVG with a bar for each name.

    Args:
        counts: names with how often they were seen; the first is drawn on top.
    """
    longest = max((count for _, count in counts), default=1)
    height = TOP + len(counts) * (BAR + GAP) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' font-family="system-ui, sans-serif" font-size="13" role="img"'
        f' aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="24" font-size="16" font-weight="600">{escape(title)}</text>',
    ]
    for place, (name, count) in enumerate(counts):
        y = TOP + place * (BAR + GAP)
        width = max(1.0, count / longest * (WIDTH - LEFT - RIGHT))
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#0a7d5a"/>',
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 14}" fill="#333">{count:,}</text>',
        ]
    parts.append(
        f'<text x="10" y="{height - 10}" font-size="10" fill="#555">{escape(caption)}</text></svg>')
    return "\n".join(parts) + "\n"
