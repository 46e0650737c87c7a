"""One line for each batch of a streaming query, and its lag.

``progress_line`` is pure; ``ProgressPrinter`` is what Spark calls.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from nsqclient.runtime.plurals import counted


def progress_line(progress: Mapping[str, Any]) -> str:
    """Write a query's progress (its JSON, read) on one line.

    ``batch 12: 50000 rows in 0.81 s (61728/s), lag: depth 1200, in flight 900, spool 0``, and where
    there were any, messages that came again and duplicates that were dropped.
    """
    seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
    rows = progress.get("numInputRows", 0)
    rate = f" ({rows / seconds:.0f}/s)" if seconds and rows else ""
    name = progress.get("name")
    head = f"{name} batch" if name else "batch"
    line = f"{head} {progress.get('batchId')}: {counted(rows, 'row')} in {seconds:.2f} s{rate}"
    for source in progress.get("sources", ()):
        lag = _lag_of(source)
        if lag is not None:
            line += f", lag: {_words(lag)}"
    return line


def _lag_of(source: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What our source reports, or None when it is another's."""
    lag = source.get("latestOffset")
    if isinstance(lag, str):  # Spark nests JSON as text
        try:
            lag = json.loads(lag)
        except ValueError:
            return None
    return lag if isinstance(lag, dict) and "spool_messages" in lag else None


def _words(lag: Mapping[str, Any]) -> str:
    depth = lag.get("depth") or {}
    words = [f"depth {sum(depth.values())}" if depth else "depth unknown"]
    words.append(f"in flight {lag.get('in_flight', 0)}")
    words.append(f"spool {lag['spool_messages']}")
    for key in ("redelivered", "duplicates_dropped"):
        if lag.get(key):
            words.append(f"{key.replace('_', ' ')} {lag[key]}")
    # A drain closes its connections when nothing is left for them.
    if not lag.get("connections", 1) and not lag.get("drained"):
        words.append("NO CONNECTION")
    return ", ".join(words)


class ProgressPrinter(StreamingQueryListener):
    """Prints ``progress_line`` for each batch of each query of a session, and how queries end.

    Give it to ``spark.streams.addListener``. Batches without rows are printed at their first only.

    Args:
        stream: where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._was_idle: set[str] = set()
        self._names: dict[str, str] = {}
        self._ended = threading.Event()

    def _print(self, text: str) -> None:
        print(text, file=self._stream or sys.stderr, flush=True)

    def onQueryStarted(self, event: Any) -> None:
        """A query began."""
        self._ended.clear()
        self._names[str(event.id)] = event.name or str(event.id)
        self._print(f"query {self._names[str(event.id)]} started")

    def onQueryProgress(self, event: Any) -> None:
        """A batch ended."""
        progress = json.loads(event.progress.json)
        query, rows = progress["id"], progress.get("numInputRows", 0)
        if rows or query not in self._was_idle:
            self._print(progress_line(progress))
        (self._was_idle.discard if rows else self._was_idle.add)(query)

    def onQueryIdle(self, event: Any) -> None:
        """A query has nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query ended."""
        self._was_idle.discard(str(event.id))
        name = self._names.pop(str(event.id), str(event.id))
        reason = (event.exception or "").strip().splitlines()
        self._print(f"query {name} ended" + (f": {reason[0]}" if reason else ""))
        self._ended.set()

    def wait(self, timeout: float) -> bool:
        """Wait until the last query's end was printed; False when it was not, in that time.

        Spark tells its listeners later, in a thread of its own, and not at all once the session is
        stopped.
        """
        return self._ended.wait(timeout)
