"""The short form of the faults while jobs run that end by themselves."""

from __future__ import annotations

import pytest

from tests.chaos import jobs


@pytest.mark.long  # it kills processes
@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "job, kind", [(job, kind) for job, kinds in jobs.JOBS.items() for kind in kinds])
def test_a_job_under_faults_loses_nothing_and_never_ends_too_early(tmp_path, job, kind):
    """Restarts, suspensions and kills of nsqd, and kills of the job."""
    result = jobs.run(tmp_path, job, kind, faults=3, seed=1)
    assert result.is_good and result.faults.total() == 3, result
