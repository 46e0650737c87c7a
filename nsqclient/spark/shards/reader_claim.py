"""``ReaderClaim``: lets only one query at a time read the logs of a topic and channel.

Two queries with separate checkpoints would delete segments that the other has not read. So a query
takes the next reader number and sends heartbeats with it, and another query does not start while
new heartbeats appear. A query that was suspended ends when it finds a higher number than its own.
``nsq-reader-claim`` is the only thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path

from nsqclient.spark.errors import LogInUseError, ObjectNotFoundError, StorageError
from nsqclient.spark.shards.names import parse_reader, reader_beat, readers
from nsqclient.spark.storage import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two heartbeats.
INTERVAL = 1.0
#: Missed heartbeats after which a reader counts as dead.
_MISSED = 5
#: Intervals that a new query waits for a running query to end.
_PATIENCE = 15
#: Intervals for which a listing is recent enough. Less than ``_MISSED``, after which another query
#: may start.
_FRESH = 3


class ReaderClaim:
    """The claim of one query on the logs of a topic and channel. Threads: any."""

    def __init__(self, store: Store, topic: str, channel: str) -> None:
        self._store = store
        self._names = (topic, channel)
        self._url = f"{store.url}/{readers(topic, channel)}"
        self._number = 0
        self._beats: list[str] = []  # keys of heartbeats that may exist; used only by the thread
        self._error: LogInUseError | None = None
        self._looked = float("inf")  # when the last listing began
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-reader-claim", daemon=True)

    def take(self) -> None:
        """Become the reader. Blocks until the last reader has ended or counts as dead."""
        while True:
            beats = self._list()
            newest = max(beats, default=0)
            if newest:
                self._check_dead(newest)
            key = reader_beat(*self._names, newest + 1, 0)
            process = {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid(),
                       "driver": describe_driver()}
            if self._store.create(key, json.dumps(process).encode()):
                break
        self._number = newest + 1
        self._looked = time.monotonic()
        for number in beats:
            self._delete(number)
        self._thread.start()

    def release(self) -> None:
        """Give up the claim. Idempotent."""
        self._end.set()
        if self._thread.ident is None:
            return
        self._thread.join()
        with contextlib.suppress(StorageError):  # the next reader waits until this one is dead
            self._delete(self._number)

    def check(self) -> None:
        """Raise LogInUseError if another query has begun to read the log."""
        if time.monotonic() - self._looked > _FRESH * INTERVAL:
            self._look()
        if self._error is not None:
            raise self._error

    def _look(self) -> None:
        began = time.monotonic()
        if max(self._list(), default=0) > self._number:
            self._error = LogInUseError(
                self._url, "another query has begun to read it, because this one gave no sign for"
                " long")
        self._looked = began

    def _list(self) -> dict[int, int]:
        """The number of the newest heartbeat of each reader."""
        listed = self._store.list_objects(readers(*self._names))
        return dict(sorted(found for one in listed if (found := parse_reader(one.key)) is not None))

    def _check_dead(self, number: int) -> None:
        try:
            holder = json.loads(self._store.read(reader_beat(*self._names, number, 0)))
        except ObjectNotFoundError:
            return  # it has just ended
        if holder["machine"] == _machine() and not _is_alive(holder["pid"]):
            return
        before, missed = self._list().get(number), 0
        for _ in range(_PATIENCE):
            self._end.wait(INTERVAL)
            newest = self._list().get(number)
            if newest is None:
                return
            missed = missed + 1 if newest == before else 0
            before = newest
            if missed >= _MISSED:
                return
        raise LogInUseError(
            self._url, f"another query ({holder['driver']} on {holder['host']}) reads it: use a"
            " separate channel for each query, or end the other one first")

    def _delete(self, number: int) -> None:
        folder = reader_beat(*self._names, number, 0).rpartition("/")[0]
        self._store.delete(one.key for one in self._store.list_objects(folder))

    def _run(self) -> None:
        serial = 0
        while not self._end.wait(INTERVAL):
            serial += 1
            try:
                key = reader_beat(*self._names, self._number, serial)
                self._store.create(key, b"")
                if self._beats:
                    self._store.delete(self._beats)
                self._beats = [key]
                self._look()
                if self._error is not None:
                    return
            except StorageError as exc:
                logger.warning("%s; trying again", exc)
            except Exception:
                logger.exception("a heartbeat failed; the query continues")


def _machine() -> str:
    """Identify the scope of process numbers: a boot of a machine, and its pid namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} without /proc"


def describe_driver() -> str:
    """Name the process of the user's program; this may be a Python process that Spark started."""
    pid, words = os.getpid(), sys.argv
    while any("pyspark" in word for word in words[:3]):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            parent = int(stat.rpartition(")")[2].split()[1])
            command = Path(f"/proc/{parent}/cmdline").read_bytes()
        except (OSError, ValueError):
            break
        pid, words = parent, command.decode(errors="replace").rstrip("\0").split("\0")
    return f"process {pid}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
