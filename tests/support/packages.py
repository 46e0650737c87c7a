"""Packages of the extra ``test`` that have no wheel for every Python; see setup.cfg."""

from __future__ import annotations

import importlib.util

import pytest


def has(name: str) -> bool:
    """Return whether a package is installed."""
    return importlib.util.find_spec(name) is not None


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a package has no wheel for this Python."""
    return pytest.mark.skipif(not has(name), reason=f"{name} has no wheel for this Python")
