"""Draws what benchmarks/overload.py saw over time. Pure: figures in, SVG out."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

#: [seconds, RDY, queued, delivered, handled] again and again.
Timeline = Sequence[Sequence[float]]

WIDTH, LEFT, GAP, TOP, HEIGHT = 860, 60, 50, 78, 150
PANEL = (WIDTH - LEFT - GAP - 20) // 2
#: The panels of a column: the curves, each with its name, color and place in a row; the step of
#: the axis.
PANELS = (
    ((("RDY", "#0a7d5a", 1), ("messages in the queue", "#b06a48", 2)), 250),
    ((("delivered by nsqd", "#b06a48", 3), ("handled", "#0a7d5a", 4)), 1000),
)


def draw(before: Timeline, after: Timeline) -> str:
    """Return an SVG: without a level of its own on the left, with it on the right."""
    parts: list[str] = []
    seconds = max(before[-1][0], after[-1][0])
    y = TOP
    for curves, step in PANELS:
        columns = [place for _, _, place in curves]
        most = max(row[column] for line in (before, after) for row in line for column in columns)
        most = step * -(-most // step)
        for index, line in enumerate((before, after)):
            x = LEFT + index * (PANEL + GAP)
            parts += _axes(x, y, seconds, most, step)
            for name, color, column in curves:
                points = " ".join(
                    f"{x + PANEL * row[0] / seconds:.1f},"
                    f"{y + HEIGHT * (1 - row[column] / most):.1f}"
                    for row in line)
                parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"'
                             f' stroke-width="2"><title>{escape(name)}</title></polyline>')
        for place, (name, color, _) in enumerate(curves):
            parts.append(f'<text x="{LEFT + 170 * place}" y="{y - 10}" fill="{color}"'
                         f' font-weight="600">{escape(name)}</text>')
        y += HEIGHT + 62
    titles = [f"rdy_share_of_timeout=0: {_total(before)}", f"the default: {_total(after)}"]
    heads = [f'<text x="{LEFT + index * (PANEL + GAP)}" y="44" font-size="15" font-weight="600">'
             f"{escape(title)}</text>" for index, title in enumerate(titles)]
    height = y - 20
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="RDY, queue and'
        ' deliveries over time, without and with a level that follows the handlers">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" fill="#555">2,000 messages, one worker, a handler of 5 ms,'
        " max_in_flight 1000, msg_timeout 1 s</text>",
        *heads, *parts, "</svg>", "",
    ])


def _total(line: Timeline) -> str:
    return f"{line[-1][3]:,.0f} deliveries"


def _axes(x: float, y: float, seconds: float, most: float, step: float) -> list[str]:
    """The frame of a panel, its steps and the seconds below it."""
    parts = [f'<rect x="{x}" y="{y}" width="{PANEL}" height="{HEIGHT}" fill="none"'
             ' stroke="#c4ccd4"/>']
    for number in range(int(most // step) + 1):
        level = y + HEIGHT * (1 - number * step / most)
        parts.append(f'<text x="{x - 6}" y="{level + 4:.1f}" text-anchor="end" font-size="10"'
                     f' fill="#555">{number * step:,.0f}</text>')
        parts.append(f'<line x1="{x}" x2="{x + PANEL}" y1="{level:.1f}" y2="{level:.1f}"'
                     ' stroke="#e6eaee"/>')
    for second in range(0, int(seconds) + 1, 2):
        at = x + PANEL * second / seconds
        parts.append(f'<text x="{at:.1f}" y="{y + HEIGHT + 14}" text-anchor="middle"'
                     f' font-size="10" fill="#555">{second} s</text>')
    return parts
