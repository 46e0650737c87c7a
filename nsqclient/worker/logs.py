"""``WorkerLog``: where the log records of a worker go, its own and those of the handlers."""

from __future__ import annotations

import logging
import sys
from types import TracebackType

from nsqclient.log_records import JsonFormatter, LineFormatter
from nsqclient.worker.middleware import LogContext

_DATE = "%Y/%m/%d %H:%M:%S"
#: Also for the supervisor, which imports no handlers.
_OURS = logging.getLogger("nsqclient")


class WorkerLog:
    """Shows the records of a worker on stderr, unless the program does so itself.

    Until the handlers are imported, only the records of the library are shown: an import may
    configure logging, and ``logging.basicConfig`` does nothing once the root logger has a handler.
    Then all records are shown, save those that a handler of the program takes.

    Args:
        level: the lowest that is shown; None: INFO, or as the program has configured it.
        as_json: whether each record is a JSON object.
        process: shown with each record; empty where there is only one.

    Life: a context manager. Threads: one.
    """

    def __init__(self, level: int | None, as_json: bool, process: str) -> None:
        self._level = logging.INFO if level is None else level
        self._is_level_given = level is not None
        self._handler = _WorkerHandler(sys.stderr)
        shown = f"[{process}] ".replace("%", "%%") if process else ""
        self._handler.setFormatter(
            JsonFormatter(process) if as_json
            else LineFormatter(f"%(asctime)s %(levelname)s {shown}%(message)s", _DATE))
        self._former = _OURS.level
        self._former_root: int | None = None

    def __enter__(self) -> WorkerLog:
        _OURS.addHandler(self._handler)
        _OURS.setLevel(self._level)
        return self

    def on_imported(self) -> None:
        """The handlers are imported: show the records of all loggers."""
        root = logging.getLogger()
        _OURS.removeHandler(self._handler)
        if root.handlers:  # the program has configured logging
            if not self._is_level_given and _OURS.level == self._level:
                _OURS.setLevel(self._former)
            return
        self._former_root = root.level
        root.setLevel(self._level)
        root.addHandler(self._handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        root = logging.getLogger()
        for logger in (_OURS, root):
            logger.removeHandler(self._handler)
        _OURS.setLevel(self._former)
        if self._former_root is not None:
            root.setLevel(self._former_root)


class _WorkerHandler(logging.StreamHandler):  # type: ignore[type-arg] # takes none on 3.10
    """Leaves out the records that another handler takes, and adds the fields of LogContext."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Show a record, unless the program does."""
        if self._is_taken(record):
            return False
        if LogContext.is_set():
            LogContext.filter(record)
        return bool(super().handle(record))

    def _is_taken(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            for each in logger.handlers:
                if (each is not self and not isinstance(each, logging.NullHandler)
                        and record.levelno >= each.level):
                    return True
            logger = logger.parent if logger.propagate else None
        return False
