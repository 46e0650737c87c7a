"""Draws what benchmarks/overload.py saw over time. Pure: figures in, SVG out."""

from __future__ import annotations


def draw(before: object, after: object) -> str:
    """Return an SVG."""
    return ""
