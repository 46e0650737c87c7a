"""The short form of the faults while messages are given up and dead letters are replayed."""

from __future__ import annotations

import pytest

from tests.chaos import letters


@pytest.mark.long  # it kills processes
@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", letters.PLACES)
@pytest.mark.parametrize("work", letters.WORKS)
def test_letters_under_faults_are_not_lost_and_no_job_ends_too_early(tmp_path, work, place):
    """Restarts, suspensions and kills of nsqd, and kills of the job."""
    result = letters.run(tmp_path, work, place, faults=2, seed=1)
    assert result.is_good and result.faults.total() == 2, result
