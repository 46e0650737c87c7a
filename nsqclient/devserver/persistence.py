"""The data path: its lock, ``nsqd.dat``, and the files of messages beyond ``mem_queue_size``.

The format of the message files is not nsqd's: one file per topic or channel, a sequence of
records::

    [4 B size of what follows][8 B timestamp][2 B attempts][16 B id][body]

Beside it ``.meta`` has the read position of the last clean close. Records behind it are read again
after a crash: duplicates, never loss. ``nsqd.dat`` has nsqd's own format.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

from nsqclient.devserver.broker import TopicMetadata
from nsqclient.devserver.protocol.commands import NSQD_VERSION
from nsqclient.devserver.queues import Backend, StoredMessage
from nsqclient.display import counted
from nsqclient.protocol.frames import MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.log_lines import LineLimit

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

_record = struct.Struct(f">IqH{MESSAGE_ID_SIZE}s")
_size = struct.Struct(">I")
_READ_SIZE = 256 * 1024


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

    def check_disk_queues(self) -> None:
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
        os.close(self._descriptor)

    def open_disk_queue(self, topic: str, channel: str | None) -> DiskQueue:
        """Return the queue of a topic or channel; the first message creates its file."""
        name = topic if channel is None else f"{topic}:{channel}"
        return DiskQueue(self._path / name, self._on_write)

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
    """A queue in a file, emptied when all is read. Every message is written at once."""

    def __init__(self, base: Path, on_write: Callable[[OSError | None], None]) -> None:
        self._on_write = on_write  # called after each write
        self._data = base.with_name(base.name + ".spool")
        self._meta = base.with_name(base.name + ".meta")
        self._descriptor = -1
        self._read = 0  # position of the next record to read
        self._end = 0  # position of the next record to write
        self._depth = 0
        self._buffer = b""  # read ahead, from _buffer_at on
        self._buffer_at = 0
        if self._data.exists():
            self._open()
            self._recover()

    @property
    def depth(self) -> int:
        return self._depth

    def put(self, message: StoredMessage) -> None:
        """Append a message; its deferral is lost, as in nsqd. OSError leaves the file unchanged."""
        size = MESSAGE_HEADER_SIZE + len(message.body)
        head = _record.pack(size, message.timestamp, message.attempts, message.id)
        record = head + message.body
        try:
            if self._descriptor < 0:
                self._open()
            written = os.pwrite(self._descriptor, record, self._end)
            if written != len(record):
                os.ftruncate(self._descriptor, self._end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            self._on_write(exc)
            raise
        self._on_write(None)
        self._end += len(record)
        self._depth += 1

    def get(self) -> StoredMessage:
        """Remove and return the first message; only while ``depth`` is not 0."""
        message, self._read = self._message_at(self._read)
        self._depth -= 1
        if not self._depth:
            self._truncate()
        return message

    def peek(self) -> list[StoredMessage]:
        messages = []
        at = self._read
        for _ in range(self._depth):
            message, at = self._message_at(at)
            messages.append(message)
        return messages

    def clear(self) -> None:
        if self._descriptor >= 0:
            self._truncate()

    def close(self) -> None:
        """Close the file and save the read position; delete an empty file."""
        if self._descriptor < 0:
            return
        if not self._depth:
            self.delete()
            return
        try:
            self._meta.write_text(json.dumps({"read": self._read, "depth": self._depth}))
        except OSError as exc:
            logger.warning("%s: cannot be written: %s; messages that were read will be delivered"
                           " again after the next start", self._meta, exc.strerror)
        os.close(self._descriptor)
        self._descriptor = -1

    def delete(self) -> None:
        self._meta.unlink(missing_ok=True)  # first: it must not outlive the file
        self._data.unlink(missing_ok=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._depth = self._read = self._end = 0

    def _open(self) -> None:
        self._descriptor = os.open(self._data, os.O_RDWR | os.O_CREAT, 0o600)

    def _recover(self) -> None:
        """Count the messages of an earlier run; remove an incomplete record at the end."""
        file_size = os.fstat(self._descriptor).st_size
        try:
            position = int(json.loads(self._meta.read_text())["read"])
        except (OSError, ValueError, LookupError, TypeError, OverflowError):
            position = 0  # never closed cleanly
        at = 0
        while at < file_size:
            if at == position:
                # Must be the start of a record. Otherwise it is of another file, and all are read.
                self._read, self._depth = at, 0
            head = self._bytes_at(at, _size.size)
            size = _size.unpack(head)[0] if len(head) == _size.size else 0
            if size < MESSAGE_HEADER_SIZE or at + _size.size + size > file_size:
                logger.warning("%s: damaged at its end: %s", self._data,
                               counted(file_size - at, "byte"))
                os.ftruncate(self._descriptor, at)
                self._buffer = b""  # it may have the removed bytes
                break
            at += _size.size + size
            self._depth += 1
        self._end = at
        if at == position:
            self._read, self._depth = at, 0

    def _message_at(self, at: int) -> tuple[StoredMessage, int]:
        size, timestamp, attempts, message_id = _record.unpack(self._bytes_at(at, _record.size))
        end = at + _size.size + size
        body = self._bytes_at(at + _record.size, end - at - _record.size)
        return StoredMessage(message_id, timestamp, body, attempts), end

    def _bytes_at(self, at: int, size: int) -> bytes:
        start = at - self._buffer_at
        if start < 0 or start + size > len(self._buffer):
            self._buffer = os.pread(self._descriptor, max(size, _READ_SIZE), at)
            self._buffer_at, start = at, 0
        return self._buffer[start:start + size]

    def _truncate(self) -> None:
        self._meta.unlink(missing_ok=True)  # first: it must not outlive the records
        os.ftruncate(self._descriptor, 0)
        self._depth = self._read = self._end = self._buffer_at = 0
        self._buffer = b""
