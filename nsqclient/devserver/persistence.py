"""The data path: its lock, ``nsqd.dat``, and the messages beyond ``mem_queue_size``.

``nsqd.dat`` has nsqd's own format. The messages are in ``messages.sqlite``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from nsqclient.devserver.broker import TopicMetadata
from nsqclient.devserver.protocol.commands import NSQD_VERSION
from nsqclient.devserver.queues import Backend, StoredMessage
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.log_lines import LineLimit

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_COLUMNS = "id, timestamp, body, attempts FROM messages"
#: The data path has a lock of its own. A message in the table survives a crash of the process, but
#: not a power failure.
_TABLE = """
    PRAGMA locking_mode = EXCLUSIVE;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS messages (
        queue TEXT, id BLOB, timestamp INTEGER, body BLOB, attempts INTEGER);
    CREATE INDEX IF NOT EXISTS messages_by_queue ON messages (queue);
"""


class DataPathError(OSError):
    """The data path cannot be used."""


class DataPath:
    """A locked directory. Lifecycle: created (locks it), used, :meth:`close`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lines = LineLimit(1)
        #: The error of the last write of a message; None if it succeeded.
        self.write_error: OSError | None = None
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as exc:
            raise DataPathError(exc.errno, f"failed to lock data-path: {exc.strerror}: {path}")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(self._descriptor)
            raise DataPathError(
                exc.errno,
                f"failed to lock data-path: cannot flock directory {path} - {exc.strerror}"
                " (possibly in use by another instance of nsqd)",
            ) from exc
        try:
            self._check_disk_queues()
            # Guarded by the engine, which any thread may enter.
            self._database = sqlite3.connect(
                self._path / "messages.sqlite", isolation_level=None, check_same_thread=False)
        except BaseException:
            os.close(self._descriptor)
            raise
        try:
            self._database.executescript(_TABLE)
        except sqlite3.Error as exc:
            self.close()
            raise DataPathError(errno.EINVAL, f"failed to open {path}/messages.sqlite: {exc}")

    def _check_disk_queues(self) -> None:
        """Raise DataPathError if a real nsqd has messages here, which would not be delivered."""
        found = [path.name for path in sorted(self._path.glob("*.diskqueue.*.dat"))
                 if not path.name.endswith(".meta.dat") and path.stat().st_size]
        if found:
            raise DataPathError(
                errno.EINVAL,
                f"{self._path} has message files of a real nsqd ({', '.join(found[:3])}), which the"
                " embedded nsqd does not read: give another directory as data path",
            )

    def close(self) -> None:
        self._database.close()
        os.close(self._descriptor)

    def open_disk_queue(self, topic: str, channel: str | None) -> DiskQueue:
        name = topic if channel is None else f"{topic}:{channel}"
        return DiskQueue(self._database, name, self._on_write)

    def _on_write(self, error: OSError | None) -> None:
        if error is not None and self.write_error is None:
            logger.log(
                self._lines.level(logging.ERROR),
                "cannot write messages to %s: %s; publishes beyond mem_queue_size fail, and"
                " messages that were accepted before stay in memory",
                self._path, error.strerror or error)
        self.write_error = error

    @property
    def metadata_path(self) -> Path:
        return self._path / "nsqd.dat"

    def save(self, topics: list[TopicMetadata]) -> None:
        data = {
            "topics": [
                {
                    "name": topic.name,
                    "paused": topic.paused,
                    "channels": [{"name": name, "paused": paused}
                                 for name, paused in topic.channels.items()] or None,
                }
                for topic in topics
            ],
            "version": NSQD_VERSION,
        }
        target = self.metadata_path
        draft = self._path / "nsqd.dat.tmp"
        draft.write_text(json.dumps(data, separators=(",", ":")))
        draft.replace(target)

    def load(self) -> list[TopicMetadata]:
        """Read ``nsqd.dat``; empty if it does not exist. Raises DataPathError if it is damaged."""
        target = self.metadata_path
        try:
            data = json.loads(target.read_text())
            saved = [
                TopicMetadata(str(topic["name"]), bool(topic["paused"]), {
                    str(channel["name"]): bool(channel["paused"])
                    for channel in topic["channels"] or () if is_valid_name(str(channel["name"]))
                })
                for topic in data["topics"] or ()
            ]
        except FileNotFoundError:
            return []
        except (ValueError, LookupError, TypeError) as exc:
            raise DataPathError(
                errno.EINVAL, f"failed to load metadata: {target} is damaged ({exc})"
            ) from exc
        return [topic for topic in saved if is_valid_name(topic.name)]


class DiskQueue(Backend):
    """The messages of one topic or channel in the database, which holds them at once."""

    def __init__(
        self, database: sqlite3.Connection, name: str, on_write: Callable[[OSError | None], None]
    ) -> None:
        self._database = database
        self._name = name
        self._on_write = on_write  # called after each write
        self._undeleted = 0  # the last row that was read and could not be deleted
        self._depth: int = self._execute(
            "SELECT count(*) FROM messages WHERE queue = ?").fetchone()[0]

    @property
    def depth(self) -> int:
        return self._depth

    def put(self, message: StoredMessage) -> None:
        """Append a message; its deferral is lost, as in nsqd. Raises OSError."""
        try:
            self._execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)",
                          message.id, message.timestamp, message.body, message.attempts)
        except OSError as exc:
            self._on_write(exc)
            raise
        self._on_write(None)
        self._depth += 1

    def get(self) -> StoredMessage:
        """Remove and return the first message; only while ``depth`` is not 0.

        On a full disk it stays in the table: it comes again after the next start.
        """
        number, *values = self._execute(
            f"SELECT rowid, {_COLUMNS} WHERE queue = ? AND rowid > ? ORDER BY rowid LIMIT 1",
            self._undeleted).fetchone()
        self._depth -= 1
        try:
            self._execute("DELETE FROM messages WHERE queue = ? AND rowid <= ?", number)
        except OSError as exc:
            self._undeleted = number
            self._on_write(exc)
        else:
            self._undeleted = 0  # SQLite may use the number again
            self._on_write(None)
        return StoredMessage(*values)

    def peek(self) -> list[StoredMessage]:
        rows = self._execute(
            f"SELECT {_COLUMNS} WHERE queue = ? AND rowid > ? ORDER BY rowid", self._undeleted)
        return [StoredMessage(*values) for values in rows]

    def clear(self) -> None:
        self._execute("DELETE FROM messages WHERE queue = ?")
        self._depth = self._undeleted = 0

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, (self._name, *values))
        except sqlite3.Error as exc:
            if "disk is full" in str(exc):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from exc
            raise OSError(errno.EIO, str(exc)) from exc
