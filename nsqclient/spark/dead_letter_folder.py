"""``FolderDeadLetters``: keeps rows as JSON lines in a folder that all executors share."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsqclient.errors import ConfigError, NSQError
from nsqclient.runtime.files import sync_folder
from nsqclient.spark.storage.local import make_durably, open_private, write_durably

#: A file by which executors recognise the driver's folder. Spark ignores names with a first dot.
_ID = ".nsqclient-id"

#: Stores a record batch of failed rows, with the error of each row.
Keep = Callable[[Any, Sequence[str]], None]
#: (row, error) -> a JSON object
Line = Callable[[Mapping[str, Any], str], Mapping[str, Any]]


def batch_name(default: str = "") -> str:
    """Name the query and batch of the current task; outside of queries, return ``default``."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if context is None or query is None:
        return default
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{query}-{int(batch):06d}"


@dataclass(frozen=True)
class FolderDeadLetters:
    """Writes failed rows as JSON lines, one file for each task that has any. Pickles.

    The name of a file contains a digest of its content. So a task that runs again replaces its own
    file, and no other. Create it with :meth:`prepare`.
    """

    path: str
    folder_id: str
    line: Line

    @classmethod
    def prepare(cls, path: str, line: Line) -> FolderDeadLetters:
        if not os.path.isabs(path):
            raise ConfigError(
                f"dead-letter path {path!r}: give an absolute path of a file system that is mounted"
                " here and where executors run")
        name = os.path.join(path, _ID)
        try:
            make_durably(path)
            with contextlib.suppress(FileExistsError):
                write_durably(name, uuid.uuid4().hex.encode())
            return cls(path, Path(name).read_text(encoding="ascii"), line)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"dead-letter path {path}: cannot be used: {exc}") from exc

    @contextlib.contextmanager
    def open(self, batch_name: str) -> Iterator[Keep]:
        """Keep rows of one task. The file appears when the block ends without an error.

        Args:
            batch_name: a name that stays the same when the task runs again.
        """
        tmp = os.path.join(self.path, f".{batch_name}-{uuid.uuid4().hex}.tmp")
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            files: list[Any] = []

            def keep(batch: Any, errors: Sequence[str]) -> None:
                if not files:
                    self._check_visible()
                    stack.callback(lambda: Path(tmp).unlink(missing_ok=True))
                    with self._explained():
                        files.append(os.fdopen(open_private(tmp), "wb"))
                    stack.callback(_close, files[0])
                with self._explained():
                    for row, error in zip(batch.to_pylist(), errors):
                        line = json.dumps(self.line(row, error), default=_text).encode() + b"\n"
                        digest.update(line)
                        files[0].write(line)

            yield keep
            for file in files:
                with self._explained():
                    file.flush()
                    os.fsync(file.fileno())
                    name = f"{batch_name}-{digest.hexdigest()[:16]}.jsonl"
                    os.replace(tmp, os.path.join(self.path, name))
                    sync_folder(self.path)

    def describe(self) -> str:
        return f"written to {self.path}"

    def _check_visible(self) -> None:
        try:
            found = Path(self.path, _ID).read_text(encoding="ascii")
        except (OSError, ValueError):
            found = ""
        if found != self.folder_id:
            raise NSQError(
                f"dead-letter path {self.path}: this executor does not see the driver's folder: use"
                " a folder that all executors share")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise NSQError(f"dead-letter path {self.path}: cannot be written: {exc}") from exc


def _close(file: Any) -> None:
    with contextlib.suppress(OSError):  # a failed write was already reported
        file.close()


def _text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def letter_of(row: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Return the fields of ``nsq_tail --json``, with ``channel`` and ``error``.

    A body that is not UTF-8 is in ``body_base64``.
    """
    line = {
        "topic": row["topic"], "channel": row["channel"], "id": row["message_id"],
        "timestamp": row["timestamp_ns"], "attempts": row["attempts"], "nsqd": row["nsqd"],
    }
    body: bytes = row["body"]
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(body).decode()
    line["error"] = error
    return line
