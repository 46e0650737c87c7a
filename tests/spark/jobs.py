"""Spark jobs as processes of a test: started, watched, killed with everything they started."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsqclient import Producer
from tests.support.processes import CHECKOUT
from tests.support.waiting import wait_until

PROGRAM = Path(__file__).resolve().parent / "programs" / "stream_job.py"
#: Options of a JVM that lives for a minute.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Settings of a session on loopback, without Spark's pages.
CONF = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.executor.extraJavaOptions": FAST_START,
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(CHECKOUT), *sys.path])}
#: Seconds for a JVM to start, or a job to end, on a busy machine.
LIMIT = 480.0


class JobEndedError(AssertionError):
    """A job has ended too early; the text has the last lines of its log."""


def each_process() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended
            yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()


class Job:
    """A run of ``stream_job.py`` in its own session, and optionally its own folder."""

    def __init__(self, folder: Path | None = None, **settings: Any) -> None:
        self._start([sys.executable, str(PROGRAM), json.dumps(settings)], folder)

    def _start(self, command: list[str], folder: Path | None, **environment: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._log: list[str] = []
        self._fresh: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, cwd=folder, env={**os.environ, **environment},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("JOB "):
                self._fresh.put(json.loads(line[4:]))
            else:
                self._log.append(line)
        self._fresh.put(None)

    def wait_for(self, **words: Any) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                line = self._fresh.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"not within {LIMIT:g} s: {words}; {self.lines[-3:]}\n{self.log()}") from None
            if line is None:
                raise JobEndedError(f"the job ended: {self.lines[-3:]}\n{self.log()}")
            self.lines.append(line)
            if all(line.get(key) == value for key, value in words.items()):
                return line

    def log(self) -> str:
        return "".join(self._log[-40:])

    def processes(self) -> list[int]:
        """Every process of the job. Spark's workers leave its group, but not its session."""
        return [pid for pid, fields in each_process()
                if int(fields[3]) == self._process.pid and fields[0] != "Z"]

    def kill(self) -> None:
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self._process.wait(LIMIT)
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def finish(self) -> dict[str, Any]:
        try:
            return self.wait_for(state="done")
        finally:
            self.close()

    def why_ended(self) -> str:
        """Return the last line of the log if the job has ended by itself, otherwise ""."""
        if self._process.poll() is None:
            return ""
        self._reader.join(10)
        while not self._fresh.empty():
            self.lines.append(self._fresh.get() or {})
        errors = [line["error"] for line in self.lines if "error" in line]
        return str((errors or [self.log()])[-1]).strip().rpartition("\n")[2] or "no reason"

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self.kill()
        wait_until(lambda: not self.processes(), 30, "every process of the job ended")


class Ingest(Job):
    """A run of ``nsqclient spark ingest`` in its own session."""

    def __init__(self, *words: str, folder: Path | None = None) -> None:
        self._start(
            [sys.executable, "-m", "nsqclient", "spark", "ingest", *words,
             *(f"--conf={name}={value}" for name, value in CONF.items())],
            folder, PYTHONPATH=str(CHECKOUT))

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in "".join(self._log) or not self._reader.is_alive(), LIMIT,
                   f"the log has {text!r}")
        if text not in "".join(self._log):
            raise JobEndedError(f"the job ended: {self.log()}")

    def terminate(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(LIMIT)
        finally:
            self.close()


class Publisher:
    """Publishes numbered messages of 200 bytes, at a steady rate, in a thread."""

    def __init__(self, address: str, topic: str, count: int, per_second: int, first: int = 0):
        self.published = 0
        self._wanted = range(first, first + count)
        self._rate = per_second
        self._end = threading.Event()
        self._topic = topic
        self._producer = Producer([address])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        step = max(1, min(1000, self._rate // 10))
        begun = time.monotonic()
        for start in range(self._wanted.start, self._wanted.stop, step):
            numbers = range(start, min(start + step, self._wanted.stop))
            bodies = [b"%08d" % number + b"x" * 192 for number in numbers]
            self._producer.publish_many(self._topic, bodies, timeout=60.0)
            self.published += len(bodies)
            ahead = self.published / self._rate - (time.monotonic() - begun)
            if self._end.wait(max(0.0, ahead)):
                return

    def join(self) -> int:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        self._producer.close()
        return self.published

    def close(self) -> None:
        self._end.set()
        self._thread.join(LIMIT)
        self._producer.close()
