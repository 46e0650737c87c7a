"""Keeps rows for which a pipeline's function fails: in a topic, or a folder.

The rows of a task are durable before it ends. A task that runs again keeps them again: a topic has
them twice then, a folder once.
"""

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
from typing import Any, Union

from nsqclient.errors import ConfigError, NSQError
from nsqclient.partitioned.producer import Producer
from nsqclient.runtime.files import sync_folder
from nsqclient.spark.options import WriteOptions
from nsqclient.spark.storage.local import make_durably, open_private, write_durably
from nsqclient.spark.publishing import Columns, RowPublisher

#: In the driver's folder, so that executors recognise it. Spark reads no file with a first dot.
_ID = ".nsqclient-id"

#: Keeps rows, with their errors.
Keep = Callable[[Any, Sequence[str]], None]


def batch_name() -> str:
    """Name the query and the batch of the task that runs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{query}-{int(batch):06d}"


@dataclass(frozen=True)
class TopicDeadLetters:
    """Publishes the bodies of rows. ``options.topic`` says where."""

    options: WriteOptions

    @contextlib.contextmanager
    def open(self, batch_name: str) -> Iterator[Keep]:
        """Keep rows of one task: published when the block ends without an error."""
        options = self.options
        with Producer(  # it has no socket before its first publish
            options.nsqd, lookupd_http_addresses=options.lookupd, config=options.config,
        ) as producer:
            publisher = RowPublisher(producer, options, Columns("body", False, False))
            yield lambda batch, errors: publisher.add(batch.select(["body"]))
            publisher.finish()

    def describe(self) -> str:
        return f"published to {self.options.topic}"


@dataclass(frozen=True)
class FolderDeadLetters:
    """Writes rows as JSON lines, a file for each task that has any; see :meth:`prepare`.

    The name of a file has a digest of what is in it: a task that runs again writes the same file,
    and parts of the source that one task reads (``files_per_batch``) never the same.

    A line has the names of ``nsq_tail --json``: ``topic``, ``id``, ``timestamp``, ``attempts``,
    ``nsqd``, and ``body``, or ``body_base64`` if it is not UTF-8; also ``channel`` and ``error``.
    """

    path: str
    folder_id: str

    @classmethod
    def prepare(cls, path: str) -> FolderDeadLetters:
        if not os.path.isabs(path):
            raise ConfigError(
                f"dead_letter_path {path!r}: give an absolute path of a file system that is mounted"
                " here and where executors run")
        name = os.path.join(path, _ID)
        try:
            make_durably(path)
            with contextlib.suppress(FileExistsError):
                write_durably(name, uuid.uuid4().hex.encode())
            return cls(path, Path(name).read_text(encoding="ascii"))
        except (OSError, ValueError) as exc:
            raise ConfigError(f"dead_letter_path {path}: cannot be used: {exc}") from exc

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
                        line = json_line(row, error)
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
                f"dead_letter_path {self.path}: this executor does not see the driver's folder: use"
                " dead_letter_topic, or a folder that all executors share")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise NSQError(f"dead_letter_path {self.path}: cannot be written: {exc}") from exc


#: A place for rows. Pickles; tasks use it.
DeadLetters = Union[TopicDeadLetters, FolderDeadLetters]


def _close(file: Any) -> None:
    with contextlib.suppress(OSError):  # a failed write was already reported
        file.close()


def json_line(row: Mapping[str, Any], error: str) -> bytes:
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
    return json.dumps(line).encode() + b"\n"
