"""Owners in tasks of a Spark job: the task itself, and the driver's side, without Spark."""

import logging
import pickle
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from nsqclient.producer.producer import Producer
from nsqclient.spark.reading import ingest_job as module
from nsqclient.spark.errors import StorageError
from nsqclient.spark.reading.ingest_job import IngestJob, own_in_task
from nsqclient.spark.options import ingest_options
from nsqclient.spark.shards import membership
from nsqclient.spark.shards.names import members
from nsqclient.spark.storage import open_store
from tests.support.waiting import wait_until


class Context:
    """Stands for Spark's context: runs tasks in threads."""

    def __init__(self, error=None, is_pickled=True):
        self.error = error
        self.is_pickled = is_pickled
        self.group = None
        self.cancelled = threading.Event()
        self.failures = 0

    def setJobGroup(self, group, description):
        self.group = group

    def parallelize(self, rows, slices):
        assert len(rows) == slices
        self.slices = slices
        return self

    def foreachPartition(self, work):
        if self.error is not None:
            raise self.error
        if self.is_pickled:
            work = pickle.loads(pickle.dumps(work))
        threads = [threading.Thread(target=work, args=[iter([number])])
                   for number in range(self.slices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self.cancelled.is_set():
                thread.join(0.05)

    def cancelJobGroup(self, group):
        assert group == self.group
        self.cancelled.set()

    def statusTracker(self):
        return self

    def getJobIdsForGroup(self, group):
        return [1, 2] if group == self.group else []

    def getJobInfo(self, job):
        return SimpleNamespace(stageIds=[0, 1]) if job == 1 else None

    def getStageInfo(self, stage):
        info = SimpleNamespace(numActiveTasks=self.slices, numFailedTasks=self.failures)
        return info if stage == 1 else None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let heartbeats and retries happen immediately."""
    monkeypatch.setattr(membership, "INTERVAL", 0.05)
    monkeypatch.setattr(module, "_RETRY_DELAY", 0.0)


@pytest.fixture
def options(server, tmp_path):
    return ingest_options({
        "topic": "t", "channel": "c", "storage": f"file://{tmp_path}/storage",
        "nsqd": server.tcp_address, "auth_secret": "s3cret"})


def job_of(options, context, tasks=2):
    return IngestJob(SimpleNamespace(sparkContext=context), options, open_store(options.storage),
                     tasks)


def test_a_job_stores_until_it_is_ended_in_order(server, options, caplog):
    caplog.set_level(logging.INFO, "nsqclient")
    context = Context()
    job = job_of(options, context)
    job.start()
    try:
        with Producer([server.tcp_address]) as producer:
            producer.publish_many("t", [b"%d" % number for number in range(500)])
        wait_until(lambda: server.stats("t", "c").get("depth") == 0, 30, "it receives")
        context.failures = 1
        job.report()
        job.report()
        assert job.is_active
        assert caplog.text.count("owners: 2 of 2 tasks running, 1 failed so far") == 1
    finally:
        job.stop()
    job.stop()
    assert not job.is_active and job.error is None and not context.cancelled.is_set()
    assert server.stats("t", "c")["in_flight_count"] == 0
    store = open_store(options.storage)
    assert store.list_objects(members("t", "c")) == []
    assert "s3cret" not in caplog.text and "s3cret" not in repr(options)


def test_a_job_that_ends_by_itself_has_its_reason(options):
    job = job_of(options, Context(RuntimeError("cancelled on Spark's page")))
    job.start()
    wait_until(lambda: not job.is_active, 30)
    assert str(job.error) == "cancelled on Spark's page"


def test_tasks_that_do_not_end_are_cancelled(options, monkeypatch, caplog):
    """The storage cannot tell them that the job has ended."""
    monkeypatch.setattr(module, "_JOB_STOP_TIMEOUT", 1.0)
    context = Context(is_pickled=False)
    job = job_of(options, context, 1)
    end = threading.Event()
    job._work = lambda rows: end.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(job._store, "create", Mock(
            side_effect=StorageError(options.storage, "is away")))
        job.start()
        wait_until(lambda: context.group, 30)
        job.stop()
    end.set()
    assert context.cancelled.is_set() and not job.is_active
    assert "is away" in caplog.text and "are cancelled" in caplog.text


def test_a_task_without_storage_fails_and_says_why(options, tmp_path, caplog):
    (tmp_path / "storage").write_text("")
    with pytest.raises(StorageError):
        own_in_task(options, "ab", logging.INFO)
    assert "Spark retries this task" in caplog.text


def test_a_task_logs_to_the_stderr_of_its_executor(monkeypatch, capsys):
    """Only once in a process, which runs many tasks, and not if logging is set up there."""
    root = logging.getLogger("nsqclient")
    level, propagate = root.level, root.propagate
    root.propagate = False
    try:
        for _ in range(2):
            module._log_to_stderr(logging.INFO)
        assert len(root.handlers) == 1 and root.level == logging.INFO
        root.info("hello")
        assert "INFO hello" in capsys.readouterr().err
    finally:
        root.propagate = propagate
        root.handlers.clear()
        root.setLevel(level)
