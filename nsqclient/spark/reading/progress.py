"""``ProgressPrinter``: prints a line with the lag for each batch of a streaming query."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from nsqclient.display import counted
from nsqclient.spark.session import reason_of

#: Maximum number of shards that a line names; the ones with the most messages.
_MOST_SHARDS = 3


def progress_line(progress: Mapping[str, Any]) -> str:
    """Show a query's progress, decoded from JSON, on one line. Pure.

    ``batch 12: 50000 rows in 0.81 s (61728/s), lag: depth 1200, in flight 900, 2 shards, stored
    1200 (a:4150 1000, b:4150 200)``, then the numbers of redelivered messages and of dropped
    duplicates. If other processes own the shards, only the stored messages are known, and their
    number is an estimate ("about").
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
    lag = source.get("latestOffset")
    if isinstance(lag, str):  # Spark nests JSON as text
        try:
            lag = json.loads(lag)
        except ValueError:
            return None
    return lag if isinstance(lag, dict) and "waiting" in lag else None


def _words(lag: Mapping[str, Any]) -> str:
    stored = _words_of_shards(lag["waiting"])
    if "depth" not in lag:
        return stored
    depth = lag.get("depth") or {}
    total = f"{'at least ' if lag.get('depth_unknown') else ''}{sum(depth.values())}"
    words = [f"depth {total if depth else 'unknown'}"]
    words += [f"in flight {lag.get('in_flight', 0)}", stored]
    for key in ("redelivered", "duplicates_dropped"):
        if lag.get(key):
            words.append(f"{key.replace('_', ' ')} {lag[key]}")
    if lag.get("disk_full"):
        words.append("STORAGE FULL")
    # A drain closes its connections at its end.
    if not lag.get("connections", 1) and not lag.get("drained"):
        words.append("NO CONNECTION")
    return ", ".join(words)


def _words_of_shards(waiting: Mapping[str, Mapping[str, int]]) -> str:
    messages = {nsqd: int(one["messages"]) for nsqd, one in waiting.items()}
    behind = sorted((nsqd for nsqd in messages if messages[nsqd]), key=lambda one: -messages[one])
    about = "about " if any(one.get("is_estimate") for one in waiting.values()) else ""
    text = f"{counted(len(messages), 'shard')}, stored {about}{sum(messages.values())}"
    if behind:
        named = [f"{nsqd} {messages[nsqd]}" for nsqd in behind[:_MOST_SHARDS]]
        if len(behind) > _MOST_SHARDS:
            named.append(f"{len(behind) - _MOST_SHARDS} more")
        text += f" ({', '.join(named)})"
    return text


class ProgressPrinter(StreamingQueryListener):
    """Prints ``progress_line`` for each batch of each query of a session, and how queries end.

    Pass it to ``spark.streams.addListener``. Of successive batches without rows, it prints the
    first.

    Args:
        stream: the output; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._was_idle: set[str] = set()
        self._names: dict[str, str] = {}
        self._ended = threading.Event()

    def _print(self, text: str) -> None:
        print(text, file=self._stream or sys.stderr, flush=True)

    def onQueryStarted(self, event: Any) -> None:
        self._ended.clear()
        self._names[str(event.id)] = event.name or str(event.id)
        self._print(f"query {self._names[str(event.id)]} started")

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        query, rows = progress["id"], progress.get("numInputRows", 0)
        if rows or query not in self._was_idle:
            self._print(progress_line(progress))
        (self._was_idle.discard if rows else self._was_idle.add)(query)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        self._was_idle.discard(str(event.id))
        name = self._names.pop(str(event.id), str(event.id))
        reason = f": {reason_of(event.exception)}" if event.exception else ""
        self._print(f"query {name} ended{reason}")
        self._ended.set()

    def wait(self, timeout: float) -> bool:
        """Wait until the last query's end is printed; return False on a timeout.

        Spark calls its listeners later, in another thread, and never after the session is stopped.
        """
        return self._ended.wait(timeout)
