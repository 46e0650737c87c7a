"""``WorkerProcesses``: several ingest processes that fill one spool, under one numbering.

It has the interface of one ``Ingest``. Each child has a thread here, ``nsq-child-N``,
that answers it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from nsqclient.errors import NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.spark.errors import SpoolError
from nsqclient.spark.ingest.pipes import Pipe
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.spool.folder import TmpFile
from nsqclient.spark.spool.known_ids import Claim
from nsqclient.spark.spool.spool import Spool

logger: logging.Logger = logging.getLogger("nsqclient.spark")


class _WorkerProcess:
    """One process, as its parent knows it. Written by its thread, read by others."""

    def __init__(self, name: str, owner: WorkerProcesses) -> None:
        self.name = name
        self.connections = 0
        self.in_flight = 0
        self.is_idle = True
        self.last_arrival = 0.0
        self.dials_failed = 0
        self.last_error: NSQError | None = None
        self.stored = 0
        self.is_stopping = False
        self._conns: set[str] = set()  # that have sent something and are not closed
        self._owner = owner
        # Where this process found its modules, which may be a zip that Spark has sent.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nsqclient.spark.ingest.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.pipe = Pipe(self._process.stdout, self._process.stdin)
        self._thread = threading.Thread(target=self._run, name=f"nsq-child-{name}", daemon=True)

    def start(self, options: ReadOptions, folder: str) -> None:
        self.send(options, self.name, folder)
        self._thread.start()

    def send(self, *words: object) -> None:
        try:
            self.pipe.send(*words)
        except OSError:
            logger.debug("ingest process %s has ended", self.name)  # its thread says so

    def end(self, deadline: Deadline) -> bool:
        """Wait until it has stopped; False when it had to be killed."""
        self._thread.join(deadline.remaining())
        in_time = not self._thread.is_alive()
        try:
            self._process.wait(deadline.at_most(1.0))  # it ends when its pipe does
        except subprocess.TimeoutExpired:
            in_time = False
            self._process.kill()
            self._process.wait()
        self._thread.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # of what could not be flushed
                continue
        return in_time

    def _run(self) -> None:
        spool = self._owner.spool
        while True:
            words = self.pipe.receive()
            if words is None:
                break
            kind, *rest = words
            if kind == "append":
                self._append(*rest)
            elif kind == "status":
                (connections, self.in_flight, self.is_idle, self.last_arrival,
                 self.dials_failed, self.last_error) = rest
                self.connections = connections  # last: Receiver reads it before last_arrival
            elif kind == "full":
                spool.report_full(*rest)
                self._owner.on_stored()
            elif kind == "refused":
                spool.refused(*rest)
            elif kind == "closed":
                self._conns.discard(rest[0])
                spool.conn_closed(*rest)
            elif kind == "redelivered":
                spool.count_redelivered(*rest)
            elif kind == "failed":
                self._owner.on_failed(rest[0])
            elif kind == "stopped":
                self.send("bye")
        # Killed: it is unknown which FINs nsqd has read.
        for conn in self._conns:
            spool.conn_closed(conn, clean=False)
        self.connections = self.in_flight = 0
        if not self.is_stopping:
            self._owner.on_failed(NSQError(
                f"ingest process {self.name} ended by itself (killed, or out of memory); what it"
                " had not stored will be delivered again"))

    def _append(
        self, tmp: TmpFile | None, rows: int, claims: list[Claim], copies: list[Claim]
    ) -> None:
        self._conns.update(claim.conn for claim in [*claims, *copies])
        try:
            result = self._owner.spool.append(tmp, rows, claims, copies)
        except SpoolError as exc:
            self.send("result", exc)
            return
        self.send("result", result)
        if result.copies is None:
            self.stored += rows + sum(len(claim.ids) for claim in copies)
            self._owner.on_stored()


class WorkerProcesses:
    """As many ingest processes as ``ingestProcesses`` says; ``max_in_flight`` is shared out.

    Life: ``start()``, ``stop()``. Threads: every method, any thread.

    Args:
        options: of the source.
        spool: open.
        on_stored: called after each segment.
        on_failed: called when a process cannot go on.
    """

    def __init__(
        self, options: ReadOptions, spool: Spool, on_stored: Callable[[], None],
        on_failed: Callable[[NSQError], None],
    ) -> None:
        count = options.ingest_processes
        share = max(1, options.config.max_in_flight // count)
        self._options = dataclasses.replace(
            options, config=options.config.replace(max_in_flight=share)
        )
        self.spool = spool
        self.on_stored = on_stored
        self.on_failed = on_failed
        self._started = time.monotonic()
        self._paused = False
        self._stopped = False
        self._lock = threading.Lock()  # guards the two above
        self._workers: list[_WorkerProcess] = []

    def start(self) -> None:
        """Start the processes; returns before they are connected."""
        for number in range(self._options.ingest_processes):
            child = _WorkerProcess(str(number + 1), self)
            self._workers.append(child)
            child.start(self._options, self.spool.folder.path)

    def stop(self, timeout: float = 5.0) -> None:
        """Let each store and finish what it has, requeue the rest, and end. Idempotent."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        for child in self._workers:
            child.is_stopping = True
            child.send("stop", timeout)
        deadline = Deadline(timeout + 3.0)
        for child in self._workers:
            if not child.end(deadline):
                logger.warning("ingest process %s did not end in time and was killed", child.name)

    def set_paused(self, paused: bool) -> None:
        """Take nothing more from nsqd, or go on."""
        with self._lock:
            if paused == self._paused:
                return
            self._paused = paused
        for child in self._workers:
            child.send("pause", paused)

    @property
    def stored(self) -> int:
        """Messages that are finished: stored, or copies."""
        return sum(child.stored for child in self._workers)

    @property
    def last_arrival(self) -> float:
        """When messages came last, or a connection opened."""
        return max([self._started, *(child.last_arrival for child in self._workers)])

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(child.connections for child in self._workers)

    @property
    def in_flight(self) -> int:
        """Messages that were received and are not answered."""
        return sum(child.in_flight for child in self._workers)

    @property
    def dials_failed(self) -> int:
        """Since the start."""
        return sum(child.dials_failed for child in self._workers)

    @property
    def is_idle(self) -> bool:
        """Return whether all that has come is stored, a moment ago."""
        return all(child.is_idle for child in self._workers)

    @property
    def last_error(self) -> NSQError | None:
        """An error that was logged and retried."""
        return next((c.last_error for c in self._workers if c.last_error is not None), None)
