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

#: In the driver's folder, so that executors recognise it. Spark reads no file with a first dot.
_ID = ".nsqclient-id"

#: Keeps rows, with their errors.
Keep = Callable[[Any, Sequence[str]], None]
#: Makes a JSON object of a row and its error.
Line = Callable[[Mapping[str, Any], str], Mapping[str, Any]]


def batch_name(default: str = "") -> str:
    """Name the query and the batch of the task that runs; outside of queries, ``default``."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if context is None or query is None:
        return default
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{query}-{int(batch):06d}"


@dataclass(frozen=True)
class FolderDeadLetters:
    """Writes rows as JSON lines, a file for each task that has any; see :meth:`prepare`.

    The name of a file has a digest of what is in it: a task that runs again writes the same file,
    and parts of the source that one task reads (``files_per_batch``) never the same.

    ``line`` makes a JSON object of a row and its error. It is pickled.
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
        """Keep rows of one task: a file when the block ends without an error.

        ``batch_name`` is the same when the task runs again.
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
