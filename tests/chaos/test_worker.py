"""The short form of the worker's chaos run, and its schedule."""

from __future__ import annotations

import pytest

from tests.chaos import worker
from tests.support.servers.real_servers import program


@pytest.mark.parametrize("seed", range(10))
def test_every_schedule_kills_a_child_and_a_supervisor(seed):
    """The same seed gives the same events, in order; none is for consumers, which are not there."""
    events = worker.build(seed, 20)
    assert events == worker.build(seed, 20) == sorted(events)
    assert {"kill_child", "kill_supervisor", "hangup"} <= {event.action for event in events}
    assert {event.target for event in events} <= {"nsqd", "lookupd", "producer", "worker"}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_worker_under_faults_loses_nothing_and_leaves_no_process(tmp_path):
    """Kills of a child and of the supervisor, SIGHUP, and faults of the servers, for 15 seconds."""
    program("nsqd")
    result, cluster = worker.run(tmp_path, 3, 15.0)
    assert result.failures == []
    assert result.stored > 300 and result.handled >= result.stored
    assert cluster.kills >= 1 and cluster.supervisor_kills >= 1
