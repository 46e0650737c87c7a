"""Fixtures of the producer's parts."""

from __future__ import annotations

import contextlib
import threading

import pytest


@pytest.fixture
def no_thread(monkeypatch):
    """Context manager: no thread starts whose name begins so."""
    start = threading.Thread.start

    @contextlib.contextmanager
    def refuse(name):
        def start_unless(thread):
            if thread.name.startswith(name):
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_unless)
            yield

    return refuse
