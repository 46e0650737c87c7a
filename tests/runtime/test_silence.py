"""How long nothing has happened, and what does not count."""

from __future__ import annotations

import pytest

from nsqclient.runtime.silence import Silence


def test_a_time_in_which_nothing_was_watched_is_no_silence():
    """The process was suspended: the messages of that time are in its sockets."""
    silence = Silence(longest=0.5)
    assert silence.watch(10.0, 10.2) == pytest.approx(0.2)
    assert silence.watch(10.0, 10.4) == pytest.approx(0.4)
    assert silence.watch(10.0, 70.0) == pytest.approx(0.9)
    assert silence.watch(10.0, 70.1) == pytest.approx(1.0)
    assert silence.watch(70.1, 70.2) == pytest.approx(0.1)  # a message came
    assert silence.watch(70.3, 70.3) == 0.0
