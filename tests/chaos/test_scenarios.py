import pytest

from tests.chaos import jobs, schedule, worker
from tests.chaos.cluster import Cluster
from tests.chaos.result import RunResult
from tests.chaos.run import run
from tests.support.servers.postgres import require_programs
from tests.support.servers.real_servers import program


@pytest.mark.long
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_worker", [False, True], ids=["cluster", "worker"])
def test_a_cluster_under_faults_loses_nothing_and_leaves_no_process(tmp_path, is_worker):
    program("nsqd")
    seed, seconds = (3, 15.0) if is_worker else (7, 10.0)
    events = (worker if is_worker else schedule).build(seed, seconds)
    cluster = (worker.WorkerCluster if is_worker else Cluster)(tmp_path, seed)
    result = run(cluster, events, RunResult(seed, seconds))
    assert result.failures == []
    assert result.stored > 300 and result.handled >= result.stored
    if is_worker:
        assert result.faults["kill_child"] >= 1 and result.faults["kill_supervisor"] >= 1


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "job, kind", [(job, kind) for job, kinds in jobs.JOBS.items() for kind in kinds])
def test_a_job_under_faults_loses_nothing_and_never_ends_too_early(tmp_path, job, kind):
    result = jobs.run(job, kind, 3, tmp_path, seed=1)
    assert result.failures == [] and result.faults.total() == 3


@pytest.mark.long
@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_of_relay_nsqd_and_database_lose_nothing_and_publish_nothing_else(tmp_path):
    pytest.importorskip("django", reason="Django comes with the test extra")
    from tests.chaos import outbox

    program("nsqd")
    require_programs()
    result = outbox.run(2, tmp_path, 7)
    assert result.failures == []
    assert result.faults == {"relay": 2, "nsqd": 2, "database": 2}
    assert result.stored > 50 and result.rejected > 5


def test_an_outbox_message_out_of_order_is_found():
    pytest.importorskip("django", reason="Django comes with the test extra")
    from tests.chaos import outbox

    assert outbox.misplaced(["k:1:a", "k:2:a", "k:1:a", "-:0:b", "l:1:a", "k:3:a"]) == []
    assert outbox.misplaced(["k:2:a", "k:1:a"]) == ["out of order: k:1:a after number 2"]
