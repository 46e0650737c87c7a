"""A standalone cluster: a master and two workers, which share no folder with the driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest

from tests.spark.chaos.test_failures import WAIT, make_channel, publish, settings
from tests.spark.jobs import FAST_START, Job
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark_chaos, pytest.mark.real, pytest.mark.timeout(1800)]

#: Executors of root's tests run as this user, which owns nothing.
NOBODY = 65534


def python_of(user: int, folder: Path) -> str:
    """Make a program that is this interpreter, or another where a user cannot run it."""
    other = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    program = folder / "python"
    program.write_text(f'#!/bin/sh\n[ -x "{sys.executable}" ] && exec "{sys.executable}" "$@"\n'
                       f'exec "{other}" "$@"\n')
    program.chmod(0o755)
    try:
        subprocess.run([str(program), "-c", ""], check=True, user=user, cwd="/")
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no Python of this version that another user can run")
    return str(program)


class Cluster:
    """A master and workers on loopback; the workers' executors have a folder of their own."""

    def __init__(
        self, folder: Path, user: int | None = None, hidden: Path | None = None
    ) -> None:
        self.folder = folder
        self._hidden = hidden  # from the workers; only root can
        self._processes: list[subprocess.Popen[bytes]] = []
        if user is None:
            user = NOBODY if os.getuid() == 0 else os.getuid()
        self.user = user

    def start(self, workers: int, cores: int = 1, memory: str = "1g") -> str:
        """Start everything; return the master's address."""
        log = self._start("deploy.master.Master", ["--port", "0"], "master", None)
        master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = self.folder / f"worker-{number}"
            work.mkdir()
            os.chown(work, self.user, -1)
            log = self._start("deploy.worker.Worker", [
                "--cores", str(cores), "--memory", memory, "--work-dir", str(work), master,
            ], f"worker-{number}", self.user)
            self._wait_for(log, "(Successfully registered)")
        return master

    def _start(self, program: str, arguments: list[str], name: str, user: int | None) -> Path:
        log = self.folder / f"{name}.log"
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{program}",
                   "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        if self._hidden is not None and user is not None and os.getuid() == 0:
            command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"',
                       str(self._hidden), *command]
        with log.open("wb") as output:
            self._processes.append(subprocess.Popen(
                command, stdout=output, stderr=output, cwd="/", user=user,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "HOME": "/",
                     "SPARK_DAEMON_JAVA_OPTS": FAST_START,
                     "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}))
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        wait_until(lambda: re.search(pattern, log.read_text()), WAIT, f"{log.name}: {pattern}")
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[1]

    def executors(self, words: bytes = b"") -> list[int]:
        """The process of each executor with these words in its command line."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or entry.stat().st_uid != self.user:
                    continue
                command = (entry / "cmdline").read_bytes()
                folder = str(self.folder).encode()
                if b"CoarseGrainedExecutorBackend" in command and words in command and (
                        os.readlink(entry / "cwd").encode().startswith(folder)):
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended
        return found

    def close(self) -> None:
        """End the workers, with their executors, and the master."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)
        wait_until(lambda: not self.executors(), 60, "the executors ended")


@pytest.fixture
def master() -> Iterator[tuple[Cluster, str]]:
    """A cluster with two workers; gives it and its address."""
    with TemporaryDirectory(prefix="nsqclient-cluster-") as name:  # pytest's are the user's alone
        cluster = Cluster(Path(name))
        cluster.folder.chmod(0o755)
        try:
            yield cluster, cluster.start(workers=2)
        finally:
            cluster.close()


def make_folder(cluster: Cluster) -> Path:
    """Make the folder of a query, with the folder of its sink, in which executors write."""
    folder = cluster.folder / "query"
    folder.mkdir()
    (folder / "out").mkdir()
    (folder / "out").chmod(0o777)
    return folder


def test_a_cluster_that_does_not_see_the_log_says_so(real_nsqd, master):
    """Its executors are another user's, on other machines as far as they see."""
    nsqd = real_nsqd(mem_queue_size=1_000_000)
    make_channel(nsqd)
    publish(nsqd, 1000)
    cluster, address = master
    run = {**settings([nsqd], make_folder(cluster)), "master": address,
           "python": python_of(cluster.user, cluster.folder),
           "conf": {"spark.executor.memory": "768m"}}
    error = Job(**run).failure()
    assert "cannot be read: Permission denied" in error or "does not have what the driver" in error
