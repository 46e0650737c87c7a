"""``Archive``: the files of one topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from nsqclient.cli.archive.files import OutputFile, OutputPaths
from nsqclient.cli.archive.naming import (
    FileNames, RotationRules, count_that_fit, rotation_reason,
)
from nsqclient.message import Message
from nsqclient.runtime.log_lines import PrefixedLogger

#: Makes a record of a message, its end of line included.
RecordFormatter = Callable[[Message], bytes]

#: Files that are open at once at most, where messages choose theirs by their own time.
_MOST_OPEN = 32


class Archive:
    """Writes messages into files, rotates them, and moves finished ones to the output directory.

    Args:
        names: of the files.
        paths: where they are.
        rules: when they end.
        formatter: builds the records.
        by_timestamp: a message's own time chooses its file, not the time of its writing; then
            several files may be open, and each is closed when it gets no record for a while.
        skip_empty: no file is made before there is a record for it.
        on_closed: called with the path of each finished file, after its move.
        log: for rotations and failures.

    After an OSError of any method call ``roll_back()``, and write again what was not synced.
    Threads: one at a time.
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
        self._closed: list[OutputFile] = []  # not in the output directory yet

    def write(self, messages: Sequence[Message], now: float) -> None:
        """Write records. They are durable after ``sync()``. ``now``: seconds since the epoch."""
        self._publish_closed()
        if not self._by_timestamp:
            self._write_to(self._names.at(now), messages, now)
            return
        for name, group in groupby(messages, lambda m: self._names.at(m.timestamp / 1e9)):
            self._write_to(name, list(group), now)

    def sync(self) -> None:
        """Make durable what was written. Blocks: fsync of each file that has new records."""
        for file in self._files.values():
            file.sync()

    def roll_back(self) -> None:
        """Forget what was written since the last ``sync()``. Raises nothing."""
        for file in list(self._files.values()):
            if file.roll_back():
                continue
            self._log.warning("%s: cannot be truncated; using a new file", file.path)
            file.abandon()
            del self._files[file.name]
            if not file.is_empty:
                self._closed.append(file)

    def tick(self, now: float) -> None:
        """Close files that are due although no record comes for them."""
        self._publish_closed()
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
        """Close every file; the next record opens one again."""
        for file in list(self._files.values()):
            self._close(file, "")
        self._publish_closed()

    def unfinished(self) -> list[str]:
        """The paths of files that are not in the output directory yet."""
        return [file.path for file in [*self._closed, *self._files.values()]]

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
        """Return the file that the next record of a name goes to."""
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
        self._closed.append(file)
        self._publish_closed()

    def _publish_closed(self) -> None:
        while self._closed:
            path = self._paths.publish(self._closed[0])
            self._closed.pop(0)
            self._on_closed(path)
