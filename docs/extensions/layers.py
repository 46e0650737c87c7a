"""Draws the layers of the library from the import contract, so that the picture cannot go stale.

``.. layer-picture::`` shows ``[importlinter:contract:layers]`` of ``.importlinter`` as an SVG:
a band for each layer, a box for each package, and imports point down. Its colours are those of
``docs/static/site.css``, which follow the theme's light and dark mode.
"""

from __future__ import annotations

import configparser
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SETTINGS = Path(__file__).resolve().parents[2] / ".importlinter"
CONTRACT = "importlinter:contract:layers"
WIDTH, BAND, GAP, LETTER = 900, 40, 8, 7.4


def layers(settings: Path = SETTINGS) -> list[list[str]]:
    """Return the packages of each layer, from the top, without the name of the package."""
    parser = configparser.ConfigParser()
    parser.read(settings, encoding="utf-8")
    lines = parser[CONTRACT]["layers"].split("\n")
    return [
        [package.strip().removeprefix("nsqclient.") for package in line.split("|")]
        for line in lines if line.strip()
    ]


def draw(bands: list[list[str]]) -> str:
    """Return an SVG of the layers."""
    parts, y = [], 26.0
    for band in bands:
        widths = [len(package) * LETTER + 18 for package in band]
        x = (WIDTH - sum(widths) - GAP * (len(band) - 1)) / 2
        parts.append(f'<rect class="band" x="6" y="{y:g}" width="{WIDTH - 12}" '
                     f'height="{BAND - 6}" rx="4"/>')
        for package, width in zip(band, widths):
            parts.append(f'<rect class="package" x="{x:.1f}" y="{y + 5:g}" width="{width:.1f}" '
                         'height="24" rx="4"/>'
                         f'<text x="{x + width / 2:.1f}" y="{y + 21:g}">{escape(package)}</text>')
            x += width + GAP
        y += BAND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 6:g}" width="100%" '
        'class="layers" font-family="system-ui, sans-serif" font-size="12" text-anchor="middle" '
        'role="img" aria-label="Packages in layers; a package imports from layers below it only">'
        f'<text x="{WIDTH / 2}" y="17">imports point down only</text>{"".join(parts)}</svg>'
    )


class LayerPicture(SphinxDirective):
    """A directive without arguments that stands for the picture."""

    def run(self) -> list[nodes.Node]:
        """Return the picture for HTML; other formats have the table of packages."""
        self.env.note_dependency(str(SETTINGS))
        return [nodes.raw("", f'<p>{draw(layers())}</p>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive with Sphinx."""
    app.add_directive("layer-picture", LayerPicture)
    return {"parallel_read_safe": True}
