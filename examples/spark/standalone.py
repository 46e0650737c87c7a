"""A standalone cluster of Spark on this machine: a master and workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyspark

_LOOPBACK = "127.0.0.1"
#: Options of a JVM that lives for a minute: no time for its best compiler, nor for a parallel GC.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Seconds for a JVM to start, on a busy machine.
_LIMIT = 300.0


class StandaloneCluster:
    """Starts in ``with``, and ends after it. Logs and the workers' folders are below ``folder``.

    ``with`` starts the master alone, and waits for nothing; ``start_workers()`` the rest.

    Args:
        cores: of each worker.
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 2) -> None:
        self._folder = folder
        self._workers, self._cores = workers, cores
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        self._log = self._start("master", ["--port", "0"])
        return self

    def start_workers(self) -> str:
        """Return the address of the master, for ``--master``.

        Blocks: until the master listens. Applications wait for the workers themselves.

        Raises:
            TimeoutError: the master did not start in time.
        """
        found = self._wait_for(self._log, r"Starting Spark master at (spark://\S+):")
        port = self._wait_for(self._log, r"'sparkMaster'.* on port (\d+)")
        master = f"{found}:{port}"
        for number in range(self._workers):
            self._start("worker", [
                "--cores", str(self._cores), "--memory", "2g",
                "--work-dir", str(self._folder / f"worker-{number}"), master], number)
        return master

    def __exit__(self, *exc_info: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()

    def _start(self, kind: str, arguments: list[str], number: int = 0) -> Path:
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{kind}-{number}.log"
        with log.open("wb") as output:
            self._processes.append(subprocess.Popen(
                [str(home / "bin" / "spark-class"),
                 f"org.apache.spark.deploy.{kind}.{kind.title()}",
                 "--host", _LOOPBACK, "--webui-port", "0", *arguments],
                stdout=output, stderr=output, start_new_session=True,
                # Executors inherit it: they find what this program finds.
                env={**os.environ, "SPARK_LOCAL_IP": _LOOPBACK, "SPARK_DAEMON_MEMORY": "256m",
                     "SPARK_DAEMON_JAVA_OPTS": FAST_START,
                     "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
                     "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}))
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        until = time.monotonic() + _LIMIT
        while time.monotonic() < until:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(f"Spark did not start in time: see {log}")
