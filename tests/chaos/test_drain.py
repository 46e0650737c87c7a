"""The short form of the faults while a job drains a channel."""

from __future__ import annotations

import pytest

from tests.chaos import drain


@pytest.mark.long  # it kills processes
@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_drain_under_faults_loses_nothing_and_never_ends_too_early(tmp_path):
    """Restarts, suspensions and kills of nsqd, and kills of the job."""
    result = drain.run(tmp_path, faults=6, seed=2)
    assert result.is_good and result.faults.total() == 6 and result.ends, result
