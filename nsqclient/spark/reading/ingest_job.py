"""``IngestJob``: a Spark job whose tasks own shards while it runs.

Spark places the tasks and restarts failed ones. The assignment of shards (``shards.membership``)
and the end of the job go through the storage, so a running task needs neither the disk nor a port
of the driver.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nsqclient.display import counted
from nsqclient.errors import NSQError
from nsqclient.spark.errors import StorageError
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.names import ended_key
from nsqclient.spark.shards.owners import ShardOwners
from nsqclient.spark.storage import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Default settings of a job of owners. Spark counts every task that is lost with its executor, for
#: as long as the job runs.
DEFAULTS = {
    "spark.task.maxFailures": "1000000",
    "spark.executor.maxNumFailures": "1000000",
}
#: Settings that users cannot change: a speculative task would be an additional owner.
FORCED = {"spark.speculation": "false"}

#: Seconds to store and finish the received messages at the end.
STOP_TIMEOUT = 10.0
#: Seconds in which a task notices the end of the job and ends.
_JOB_STOP_TIMEOUT = STOP_TIMEOUT + 15.0
#: Seconds that a task waits before it fails, because Spark retries it immediately.
_RETRY_DELAY = 5.0


class IngestJob:
    """The driver's side of a job of owners.

    Lifecycle: ``start()``, ``report()`` any number of times, ``stop()``; it cannot be restarted.
    Threads: one.

    Args:
        store: the storage, opened in the driver.
        tasks: number of tasks. Each occupies a slot of Spark.
        level: log level of the tasks, which log to stderr of the executors.
    """

    def __init__(
        self, spark: SparkSession, options: ReadOptions, store: Store, tasks: int,
        level: int = logging.INFO,
    ) -> None:
        self.name: str = uuid.uuid4().hex
        self._context: Any = spark.sparkContext
        self._store = store
        self._ended_key = ended_key(options.topic, options.channel, self.name)
        self._tasks = tasks
        self._work = functools.partial(own_in_task, options, self.name, level)
        self._description = f"nsqclient spark ingest {options.topic}/{options.channel}"
        self.error: Exception | None = None  #: why the job has ended by itself
        self._last = (0, 0)  # running and failed tasks in the last report
        self._thread = threading.Thread(target=self._run, name="nsq-ingest-job", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    def report(self) -> None:
        tracker = self._context.statusTracker()
        running = failed = 0
        for job in tracker.getJobIdsForGroup(self.name):
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                found = tracker.getStageInfo(stage)
                if found is not None:
                    running += found.numActiveTasks
                    failed += found.numFailedTasks
        if (running, failed) != self._last:
            self._last = running, failed
            logger.info("owners: %d of %s running, %d failed so far", running,
                        counted(self._tasks, "task"), failed)

    def stop(self) -> None:
        """End the tasks, and cancel those that do not end. Blocks up to about 50 s."""
        if not self._thread.is_alive():
            return
        try:
            self._store.create(self._ended_key, b"")
            self._thread.join(_JOB_STOP_TIMEOUT)
        except StorageError as exc:
            logger.warning("%s", exc)
        if self._thread.is_alive():
            logger.warning("owners: tasks did not end in time and are cancelled: nsqd delivers"
                           " their unfinished messages again after msg_timeout")
            self._context.cancelJobGroup(self.name)
            self._thread.join(_JOB_STOP_TIMEOUT)
        with contextlib.suppress(StorageError):
            self._store.delete([self._ended_key])

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self.name, self._description)
            self._context.parallelize(range(self._tasks), self._tasks).foreachPartition(self._work)
        except Exception as exc:  # Spark's errors do not share a base class
            self.error = exc


def own_in_task(options: ReadOptions, job: str, level: int, _rows: Iterable[int] = ()) -> None:
    """Own shards in a task of Spark until the job ends. Spark retries a failed task."""
    _log_to_stderr(level)
    pause = threading.Event()  # never set
    try:
        store = open_store(options.storage)
        owners = ShardOwners(options, store, job)
        try:
            owners.open()
            owners.run(pause.wait)
        finally:
            owners.stop(STOP_TIMEOUT)
    except NSQError as exc:
        logger.error("%s; Spark retries this task", exc)
        pause.wait(_RETRY_DELAY)
        raise


def _log_to_stderr(level: int) -> None:
    """Log to stderr, which Spark keeps for each executor, unless logging is set up there."""
    root = logging.getLogger("nsqclient")
    if not root.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        root.addHandler(handler)
        root.setLevel(level)
