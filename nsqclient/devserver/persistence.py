"""The data path: its lock, the names of what exists, and the files that queues overflow to.

The files are ours, not nsqd's: one per topic or channel, records one after the other::

    [4 B size of what follows][8 B timestamp][2 B attempts][16 B id][body]

Beside it, after a clean close, ``.meta`` says from where to read. Without it everything is read
again: duplicates, never loss. ``nsqd.dat`` has nsqd's own format.
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

from nsqclient.devserver.catalog import SavedChannel, SavedTopic
from nsqclient.devserver.store import StoredMessage
from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.server_identify import NSQD_VERSION
from nsqclient.protocol.wire import MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE
from nsqclient.runtime.plurals import counted

logger = logging.getLogger("nsqclient.devserver")

_record = struct.Struct(f">IqH{MESSAGE_ID_SIZE}s")
_size = struct.Struct(">I")
_READ_SIZE = 256 * 1024


class DataPathError(OSError):
    """The data path cannot be used."""


class DataPath:
    """A locked directory. Life: created (locks it), used, :meth:`close`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        #: Why the last message could not be written; None when it could.
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

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)

    def open_spool(self, topic: str, channel: str | None) -> Spool:
        """Return the file of a topic or channel; it is made with the first message."""
        name = topic if channel is None else f"{topic}:{channel}"
        return Spool(self._path / name, self._wrote)

    def _wrote(self, error: OSError | None) -> None:
        self.write_error = error

    def save(self, topics: list[SavedTopic]) -> None:
        """Write ``nsqd.dat``, whole or not at all."""
        data = {
            "topics": [
                {
                    "name": topic.name,
                    "paused": topic.paused,
                    "channels": [channel._asdict() for channel in topic.channels] or None,
                }
                for topic in topics
            ],
            "version": NSQD_VERSION,
        }
        target = self._path / "nsqd.dat"
        draft = self._path / "nsqd.dat.tmp"
        draft.write_text(json.dumps(data, separators=(",", ":")))
        draft.replace(target)

    def load(self) -> list[SavedTopic]:
        """Read ``nsqd.dat``; nothing when there is none.

        Raises:
            DataPathError: the file is damaged.
        """
        target = self._path / "nsqd.dat"
        try:
            data = json.loads(target.read_text())
            saved = [
                SavedTopic(
                    str(topic["name"]),
                    bool(topic["paused"]),
                    tuple(
                        SavedChannel(str(channel["name"]), bool(channel["paused"]))
                        for channel in topic["channels"] or ()
                        if is_valid_name(str(channel["name"]))
                    ),
                )
                for topic in data["topics"] or ()
            ]
        except FileNotFoundError:
            return []
        except (ValueError, LookupError, TypeError) as exc:
            raise DataPathError(
                errno.EINVAL, f"failed to load metadata: {target} is damaged ({exc})"
            ) from exc
        return [topic for topic in saved if is_valid_name(topic.name)]


class Spool:
    """A queue in a file: appended at the end, read from the front, emptied when read through.

    Every message is handed to the system at once, so a killed process loses none of them.
    """

    def __init__(self, base: Path, wrote: Callable[[OSError | None], None]) -> None:
        self._wrote = wrote  # told how each write ended
        self._data = base.with_name(base.name + ".spool")
        self._meta = base.with_name(base.name + ".meta")
        self._descriptor = -1
        self._read = 0  # where the next record begins
        self._end = 0  # where the next one goes
        self._depth = 0
        self._buffer = b""  # read ahead, from _buffer_at on
        self._buffer_at = 0
        if self._data.exists():
            self._open()
            self._recover()

    @property
    def depth(self) -> int:
        """How many messages the file holds."""
        return self._depth

    def put(self, message: StoredMessage) -> None:
        """Append a message; its deferral is lost, as in nsqd.

        Raises:
            OSError: it could not be written, and the file is as before.
        """
        if self._descriptor < 0:
            self._open()
        size = MESSAGE_HEADER_SIZE + len(message.body)
        head = _record.pack(size, message.timestamp, message.attempts, message.id)
        record = head + message.body
        try:
            written = os.pwrite(self._descriptor, record, self._end)
            if written != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            os.ftruncate(self._descriptor, self._end)
            self._wrote(exc)
            raise
        self._wrote(None)
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
        """Return copies of all messages."""
        messages = []
        at = self._read
        for _ in range(self._depth):
            message, at = self._message_at(at)
            messages.append(message)
        return messages

    def clear(self) -> None:
        """Forget all messages."""
        if self._descriptor >= 0:
            self._truncate()

    def close(self) -> None:
        """Close the file and note where to go on; without messages leave no file."""
        if self._descriptor < 0:
            return
        if not self._depth:
            self.delete()
            return
        self._meta.write_text(json.dumps({"read": self._read, "depth": self._depth}))
        os.close(self._descriptor)
        self._descriptor = -1

    def delete(self) -> None:
        """Remove the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._depth = self._read = self._end = 0
        self._data.unlink(missing_ok=True)
        self._meta.unlink(missing_ok=True)

    def _open(self) -> None:
        self._descriptor = os.open(self._data, os.O_RDWR | os.O_CREAT, 0o600)

    def _recover(self) -> None:
        """Find out what an earlier run left; a record that was cut off is removed."""
        file_size = os.fstat(self._descriptor).st_size
        try:
            self._read = int(json.loads(self._meta.read_text())["read"])
        except (OSError, ValueError, LookupError, TypeError):
            self._read = 0  # no clean close
        # Once we write, it is out of date.
        self._meta.unlink(missing_ok=True)
        at = self._read
        while at < file_size:
            head = self._bytes_at(at, _size.size)
            size = _size.unpack(head)[0] if len(head) == _size.size else 0
            if size < MESSAGE_HEADER_SIZE or at + _size.size + size > file_size:
                logger.warning("%s: damaged at its end: %s", self._data,
                               counted(file_size - at, "byte"))
                os.ftruncate(self._descriptor, at)
                self._buffer = b""  # it may hold what was cut off
                break
            at += _size.size + size
            self._depth += 1
        self._end = at

    def _message_at(self, at: int) -> tuple[StoredMessage, int]:
        """Return the message that begins at a position, and where the next one begins."""
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
        os.ftruncate(self._descriptor, 0)
        self._depth = self._read = self._end = self._buffer_at = 0
        self._buffer = b""
