"""``FileNames``, ``Archive``: the files, and when one ends; ``Archiver``: the handler.

Everything that touches files runs on the consumer's one worker thread.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from nsqclient import AlreadyRespondedError, BatchHandler, Message, NSQConnectionError
from nsqclient.cli.archive_files import ClosedFile, OutputFile, OutputPaths, RotationRules
from nsqclient.cli.flags import FlagError
from nsqclient.consumer.batch import BatchDelegate
from nsqclient.display import counted
from nsqclient.runtime.log_lines import PrefixedLogger

#: The codes that the original knows; all others are literal text.
_CODES = re.compile("%[BbmAadHIMSYypZz%]")


def format_datetime(text: str, at: time.struct_time) -> str:
    """Fill in the ``%`` codes of ``--datetime-format``."""
    return _CODES.sub(lambda code: time.strftime(code[0], at), text)


class FileNames:
    """The names of one topic's files, each with ``<REV>`` left open.

    ``needs_rev``: several files may want one name; otherwise ``<REV>`` is removed.
    """

    def __init__(
        self, text: str, datetime_format: str, *, topic: str, hostname: str, host_identifier: str,
        pid: int, needs_rev: bool, suffix: str,
    ) -> None:
        if needs_rev and "<REV>" not in text:
            raise FlagError(
                "missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        short = hostname.split(".")[0]
        host = host_identifier or short
        host = host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)
        if not needs_rev:
            text = text.replace("<REV>", "")
        text = text.replace("<TOPIC>", topic).replace("<HOST>", host).replace("<PID>", str(pid))
        self._template = text if text.endswith(suffix) else text + suffix
        self._format = datetime_format
        self._second = -1
        self._name = self._template

    def at(self, moment: float) -> str:
        second = int(moment)
        if second != self._second and "<DATETIME>" in self._template:
            text = format_datetime(self._format, time.localtime(second))
            self._name, self._second = self._template.replace("<DATETIME>", text), second
        return self._name


def rotation_reason(
    former: str, opened: float, size: int, name: str, now: float, rules: RotationRules
) -> str | None:
    """Return why the next record may not go into the open file; None if it may.

    Args:
        former: the name of the open file.
        name: the name that a file opened now would have.
    """
    if name != former:
        return f"new filename {name}"
    if 0 < rules.interval < now - opened:
        return f"{now - opened:.3f}s since last open"
    if 0 < rules.size < size:
        return f"currently {counted(size, 'byte')} (> {rules.size})"
    return None


def count_that_fit(sizes: Iterable[int], size: int, rules: RotationRules) -> int:
    """Return how many records go into a file of ``size`` bytes before it is full.

    The last record may exceed the limit.
    """
    count = 0
    for record in sizes:
        if 0 < rules.size < size:
            break
        size += record
        count += 1
    return count


RecordFormatter = Callable[[Message], bytes]

#: Maximum number of open files with ``--datetime-from=message``.
_MOST_OPEN = 32
#: Seconds that a record waits for others before it is written (not synced).
_WRITE_DELAY = 0.1
_MOVE_RETRY = 60.0
#: Messages are synced before this part of their timeout has passed.
_PART_OF_TIMEOUT = 0.5


class Archive:
    """Writes messages into files, rotates them, and moves finished ones to the output directory.

    Args:
        by_timestamp: a message's own time chooses its file. Then several files may be open, and
            each is closed when it gets no record for a while.
        skip_empty: no file is made before there is a record for it.
        on_closed: called with the path of each finished file, after its move.

    A finished file that cannot be moved is set aside: it delays no message, and its move is
    retried. After an OSError of any method, call ``roll_back()`` and write the unsynced records
    again.
    """

    def __init__(
        self, names: FileNames, paths: OutputPaths, rules: RotationRules,
        formatter: RecordFormatter, *,
        by_timestamp: bool, skip_empty: bool, on_closed: Callable[[str], None], log: PrefixedLogger,
    ) -> None:
        self._names = names
        self._paths = paths
        self._rules = rules
        self._format = formatter
        self._by_timestamp = by_timestamp
        self._skip_empty = skip_empty or by_timestamp
        self._on_closed = on_closed
        self._log = log
        self._files: dict[str, OutputFile] = {}  # open ones by name, the latest last
        self._last = ("", 0)  # name and revision of the last one opened
        self._aside: dict[ClosedFile, None] = {}  # could not be moved
        self._next_move = 0.0
        #: True after another program has moved or deleted a file that was not finished.
        self.has_failed: bool = False

    def finish_left_files(self) -> None:
        """Finish the files of a killed archiver. Call before the first message."""
        for file in self._paths.left_files():
            self._publish(file)

    def write(self, messages: Sequence[Message], now: float) -> None:
        """Write records, which are durable after ``sync()``. ``now``: seconds since the epoch."""
        if not self._by_timestamp:
            self._write_to(self._names.at(now), messages, now)
            return
        for name, group in groupby(messages, lambda m: self._names.at(m.timestamp / 1e9)):
            self._write_to(name, list(group), now)

    def sync(self) -> None:
        for file in self._files.values():
            file.sync()

    def roll_back(self) -> None:
        """Discard the records written since the last ``sync()``. Raises nothing."""
        for file in list(self._files.values()):
            if file.roll_back():
                continue
            self._log.warning("%s: cannot be truncated; using a new file", file.path)
            file.abandon()
            del self._files[file.name]
            if not file.is_empty:
                self._publish(ClosedFile(file.name, file.rev, file.path))

    def tick(self, now: float) -> None:
        """Close files that are due even without a new record."""
        if now >= self._next_move:
            self._retry_moves()
            self._next_move = now + _MOVE_RETRY
        name = self._names.at(now)
        for file in list(self._files.values()):
            expected = file.name if self._by_timestamp else name
            reason = self._rotation_reason(file, expected, now)
            if reason is None and self._by_timestamp and not file.is_used:
                reason = "no new record for it"
            if reason is not None:
                self._close(file, reason)
            file.is_used = False
        if not self._files and not self._skip_empty:
            self._open(name, now)

    def close(self) -> None:
        for file in list(self._files.values()):
            self._close(file, "")
        self._retry_moves()

    def release(self) -> None:
        self._paths.release()

    def unfinished(self) -> list[str]:
        aside = [file.path for file in self._aside]
        return aside + [file.path for file in self._files.values()]

    def _write_to(self, name: str, messages: Sequence[Message], now: float) -> None:
        records = list(map(self._format, messages))
        while records:
            file = self._ready(name, now)
            count = len(records)
            if self._rules.size:
                count = count_that_fit(map(len, records), file.size, self._rules)
            file.write(b"".join(records[:count]))
            records = records[count:]

    def _ready(self, name: str, now: float) -> OutputFile:
        most = _MOST_OPEN if self._by_timestamp else 1
        if name not in self._files and len(self._files) >= most:
            self._close(next(iter(self._files.values())), f"new filename {name}")
        file = self._files.get(name)
        if file is not None:
            reason = self._rotation_reason(file, name, now)
            if reason is None:
                return file
            self._close(file, reason)
        return self._open(name, now)

    def _rotation_reason(self, file: OutputFile, name: str, now: float) -> str | None:
        return rotation_reason(file.name, file.opened, file.size, name, now, self._rules)

    def _open(self, name: str, now: float) -> OutputFile:
        # One more than the last of this name.
        first = self._last[1] + 1 if self._last[0] == name else 0
        file = self._paths.open(name, first, now)
        self._last = (name, file.rev)
        self._files[name] = file
        return file

    def _close(self, file: OutputFile, reason: str) -> None:
        if reason:
            self._log.info("%s: %s, rotating...", file.path, reason)
        file.close()
        del self._files[file.name]
        self._publish(ClosedFile(file.name, file.rev, file.path))

    def _publish(self, file: ClosedFile, is_retry: bool = False) -> None:
        """Move a finished file, or set it aside. Raises nothing."""
        level = logging.DEBUG if is_retry else logging.ERROR
        try:
            path = self._paths.publish(file)
        except OSError as exc:
            if os.path.lexists(file.path):
                self._aside[file] = None
                self._log.log(level, "cannot move the finished file %s: %s; it is set aside, and"
                              " its move is retried each minute", file.path, exc)
                return
            self.has_failed = True
            self._log.error("the finished file %s is gone: another program has moved or deleted"
                            " it", file.path)
        else:
            self._on_closed(path)
        self._aside.pop(file, None)

    def _retry_moves(self) -> None:
        for file in list(self._aside):
            self._publish(file, is_retry=True)


class Archiver(BatchHandler):
    """Collects messages, writes and syncs them together, then finishes them.

    It syncs when ``size`` messages wait, when the consumer is starved, each ``sync_interval``
    seconds, before messages time out, and when a file is closed. After a failed write the unsynced
    records are rolled back, all waiting messages are requeued, and the consumer backs off.
    """

    def __init__(
        self, archive: Archive, size: int, sync_interval: float, log: PrefixedLogger,
    ) -> None:
        super().__init__(lambda batch: None, size, sync_interval)
        self._archive = archive
        self._most = size
        self._interval = sync_interval
        self._log = log
        self._owner: BatchDelegate  # set by bind()
        # Used only by the worker thread, as all below.
        self._pending: list[Message] = []
        self._written = 0  # how many of them were handed to the archive
        self._write_is_due = False
        self._sync_is_due = False
        self._is_closed = False
        self._has_failed = False

    @property
    def has_failed(self) -> bool:
        return self._has_failed or self._archive.has_failed

    def bind(self, consumer: BatchDelegate) -> None:
        self._owner = consumer
        consumer.run_later(self._interval, self._on_tick)

    def __call__(self, message: Message) -> None:
        message.enable_async()
        pending = self._pending
        pending.append(message)
        owner = self._owner
        if len(pending) >= self._most or owner.is_starved():
            self._sync()
        elif not self._write_is_due:
            self._write_is_due = True
            owner.run_later(_WRITE_DELAY, lambda: owner.run_on_worker(self._write_waiting))

    def reopen(self) -> None:
        """Sync and close the files; the next message opens one. Threads: any."""
        self._owner.run_on_worker(self._reopen)

    def flush(self) -> None:
        """Sync, and close the files finally, at the consumer's stop."""
        self._sync()
        self._is_closed = True
        try:
            self._archive.close()
        except OSError as exc:
            self._log.error("cannot close a file: %s", exc)
        left = self._archive.unfinished()
        if left:
            self._has_failed = True
            self._log.error("not finished: %s", ", ".join(left))
        self._archive.release()

    def requeue_pending(self) -> None:
        """Requeue the unsynced messages after a stop that has run out of time."""
        self._requeue(backoff=False)

    def _on_tick(self) -> None:
        self._owner.run_on_worker(self._tick)

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._owner.run_later(self._interval, self._on_tick)
        if self._try(self._write_pending) and self._try(lambda: self._archive.tick(time.time())):
            self._sync()

    def _reopen(self) -> None:
        self._sync()
        if self._try(self._archive.close):
            self._log.info("closed all files; the next message opens a new one")

    def _write_waiting(self) -> None:
        """Write the waiting messages, and schedule a sync before they time out."""
        self._write_is_due = False
        if not self._is_closed and self._try(self._write_pending):
            self._watch_timeout()

    def _watch_timeout(self) -> None:
        if not self._pending or self._sync_is_due:
            return
        first, owner = self._pending[0], self._owner
        left = first.time_left - (first.deadline - first.received) * (1 - _PART_OF_TIMEOUT)
        if left <= 0:
            self._sync()
        elif left < self._interval:
            self._sync_is_due = True
            owner.run_later(left, lambda: owner.run_on_worker(self._on_timeout_near))

    def _on_timeout_near(self) -> None:
        self._sync_is_due = False
        self._watch_timeout()

    def _write_pending(self) -> None:
        fresh = self._pending[self._written:] if self._written else self._pending
        if fresh:
            self._archive.write(fresh, time.time())
            self._written = len(self._pending)

    def _sync(self) -> None:
        if not self._pending:
            return
        if not (self._try(self._write_pending) and self._try(self._archive.sync)):
            return
        done, self._pending, self._written = self._pending, [], 0
        self._log.debug("synced %s to disk", counted(len(done), "record"))
        for message in done:
            try:
                message.finish()
            except (AlreadyRespondedError, NSQConnectionError) as exc:
                self._log.info("%s", exc)

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as exc:
            # A full disk needs no traceback; an error that is not an OSError is a bug.
            self._log.error(
                "cannot write: %s; requeued %s", exc, counted(len(self._pending), "message"),
                exc_info=not isinstance(exc, OSError),
            )
            self._archive.roll_back()
            self._requeue(backoff=True)
            return False
        return True

    def _requeue(self, backoff: bool) -> None:
        # Without delay: the backoff delays them.
        back, self._pending, self._written = self._pending, [], 0
        for message in back:
            try:
                message.requeue(delay=0, backoff=backoff)
            except (AlreadyRespondedError, NSQConnectionError) as exc:
                self._log.info("%s", exc)
