"""What not every Python has: packages of the extra ``test`` (see setup.cfg), the lock."""

import importlib.util
import sys

import pytest


#: Whether one thread at a time runs Python code.
HAS_INTERPRETER_LOCK: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test if a package is missing, since some lack a wheel for this Python."""
    return pytest.mark.skipif(not has(name), reason=f"{name} has no wheel for this Python")
