"""The short form of the chaos run of replays: each point of a letter's replay once."""

from __future__ import annotations

import pytest

from tests.chaos import replay


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["topic", "directory"])
def test_a_replay_that_is_killed_loses_no_letter(server_factory, tmp_path, place):
    """By SIGKILL: before and after the publish and the removal, and at any time."""
    kills = len(replay.POINTS)
    server = server_factory(msg_timeout=1.0)
    result = replay.run(server, place, tmp_path, kills, seed=1)
    assert (result.lost, result.left, result.errors) == ([], 0, [])
    assert result.kills == kills
    assert result.duplicates <= 2 * kills
