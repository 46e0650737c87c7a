"""Callbacks: told, and harmless when they fail."""

from __future__ import annotations

import pytest

from nsqclient.consuming.callbacks import Callbacks


def test_a_callback_is_told():
    """With what there is to tell; one that was not given is no error."""
    seen = []
    callbacks = Callbacks(on_error=lambda *arguments: seen.append(arguments), on_connect=None)
    callbacks.tell("on_error", 1, 2)
    callbacks.tell("on_connect", 3)
    assert seen == [(1, 2)]


@pytest.mark.parametrize("failure", [RuntimeError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_that_fails_is_logged(failure, caplog):
    """Whatever it raises, the library's thread goes on."""
    def fail():
        raise failure

    Callbacks(on_error=fail).tell("on_error")
    assert "on_error failed" in caplog.text
