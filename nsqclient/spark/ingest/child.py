"""The program of an ingest process: reads from nsqds, writes files, asks its parent for numbers.

The parent has the spool: it knows which messages of all processes are durable, and links files
under their numbers. ``python -m nsqclient.spark.ingest.child``, with a pipe on stdin and
stdout.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from nsqclient.errors import NSQError
from nsqclient.spark.errors import SpoolError, SpoolFullError
from nsqclient.spark.ingest.ingest import Ingest
from nsqclient.spark.ingest.pipes import Pipe
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.spool.folder import SpoolFolder, TmpFile
from nsqclient.spark.spool.known_ids import Claim
from nsqclient.spark.spool.spool import AppendResult

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two status reports.
_REPORT_INTERVAL = 0.1


class RemoteSink:
    """The sink of a child: files are written here, numbers come from the parent."""

    def __init__(self, pipe: Pipe, folder: str) -> None:
        self._pipe = pipe
        self._folder = SpoolFolder(folder)
        self._results: queue.SimpleQueue[AppendResult | SpoolError] = queue.SimpleQueue()

    def write_tmp(self, data: Any) -> TmpFile:
        """Write a temporary file, to disk."""
        return self._folder.write_tmp(data)

    def append(
        self, tmp: TmpFile | None, rows: int, claims: Sequence[Claim],
        copies: Sequence[Claim] = (),
    ) -> AppendResult:
        """Ask the parent; see ``Spool.append``. Only the writer calls it."""
        self._send("append", tmp, rows, list(claims), list(copies))
        result = self._results.get()
        if isinstance(result, SpoolError):
            raise result
        return result

    def report_full(self, error: SpoolFullError) -> None:
        """The disk is full."""
        self._send("full", error)

    def count_redelivered(self, number: int) -> None:
        """Messages came with attempts over 1."""
        self._send("redelivered", number)

    def refused(self, nsqd: str, message_id: bytes) -> None:
        """nsqd refused FIN for a durable message."""
        self._send("refused", nsqd, message_id)

    def conn_closed(self, conn: str, clean: bool) -> None:
        """A connection ended."""
        self._send("closed", conn, clean)

    def _send(self, *words: Any) -> None:
        try:
            self._pipe.send(*words)
        except OSError as exc:
            raise SpoolError(str(self._folder), "the process that has the spool is gone") from exc

    def answer(self, result: AppendResult | SpoolError) -> None:
        """The parent answered."""
        self._results.put(result)


def run(pipe: Pipe) -> int:
    """Execute the parent's commands until it sends stop, or is gone."""
    first = pipe.receive()
    if first is None:
        return 1
    options, name, folder = first
    assert isinstance(options, ReadOptions)
    sink = RemoteSink(pipe, folder)
    failed = threading.Event()

    def on_failed(error: NSQError) -> None:
        failed.set()
        _send(pipe, "failed", error)

    ingest = Ingest(options, sink, name, on_failed=on_failed)
    over = threading.Event()
    reporter = threading.Thread(
        target=_report, args=(pipe, ingest, over), name="nsq-reporter", daemon=True
    )
    ingest.start()
    reporter.start()
    while True:
        words = pipe.receive()
        if words is None:
            # Nothing can be stored any more: the writer fails, and requeues everything.
            sink.answer(SpoolError(folder, "the process that has the spool is gone"))
            ingest.stop(2.0)
            break
        if words[0] == "result":
            sink.answer(words[1])
        elif words[0] == "pause":
            ingest.set_paused(words[1] or failed.is_set())
        elif words[0] == "stop":
            # In a thread of its own: the last segment needs results, which this loop receives.
            threading.Thread(
                target=_stop, args=(pipe, ingest, words[1]), name="nsq-stop", daemon=True
            ).start()
        elif words[0] == "bye":
            break
    over.set()
    reporter.join(1.0)
    return 0


def _stop(pipe: Pipe, ingest: Ingest, timeout: float) -> None:
    ingest.stop(timeout)
    _send(pipe, "stopped")


def _report(pipe: Pipe, ingest: Ingest, over: threading.Event) -> None:
    while not over.wait(_REPORT_INTERVAL):
        _send(pipe, "status", ingest.connections, ingest.in_flight, ingest.is_idle,
              ingest.last_arrival, ingest.dials_failed, ingest.last_error)


def _send(pipe: Pipe, *words: Any) -> None:
    try:
        pipe.send(*words)
    except OSError:
        logger.debug("the parent process has ended")


def main() -> int:
    """Run with a pipe on stdin and stdout; what is printed by mistake goes to stderr."""
    # The parent decides when it ends: a Ctrl-C reaches the whole group of a terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return run(Pipe(sys.stdin.buffer, target))


if __name__ == "__main__":
    sys.exit(main())
