"""The short form of the kills of a job that drains a channel."""

from __future__ import annotations

import pytest

from tests.chaos import drain


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_that_is_killed_while_it_drains_loses_nothing(server, tmp_path):
    """Four kills, and the next job takes what the killed ones had."""
    result = drain.run(server, tmp_path, kills=4, seed=2)
    assert (result.kills, result.lost, result.status) == (4, 0, 0)
    assert result.published >= 1200
