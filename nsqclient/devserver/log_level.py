"""``LogLevel``: the level of the embedded servers' log, which ``/config/log_level`` may change."""

from __future__ import annotations

import logging
import threading

from nsqclient.errors import ConfigError

#: nsqd's levels, and the numbers that stand for them; those of Python are ten times as much.
LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}

_logger = logging.getLogger("nsqclient.devserver")


class LogLevel:
    """The level that one nsqd was told; it holds for the log of all embedded servers here.

    Args:
        name: a key of LEVELS to begin with; None: the program's own configuration holds until
            ``set``, and ``number`` says what nsqd would, 2.

    Raises:
        ConfigError: no such level.

    Life: ``set`` any number of times; ``restore`` puts back what was there before. Threads: any.
    """

    def __init__(self, name: str | None) -> None:
        if name is not None and name not in LEVELS:
            raise ConfigError(f"log_level must be one of {', '.join(LEVELS)}, not {name!r}")
        self._lock = threading.Lock()
        self._name = name  # guarded by _lock, as _former
        self._former: int | None = None

    def start(self) -> None:
        """Let the level that was given hold."""
        if self._name is not None:
            self.set(self._name)

    def set(self, name: str) -> None:
        """Change the level to a key of LEVELS."""
        with self._lock:
            if self._former is None:
                self._former = _logger.level
            self._name = name
            _logger.setLevel(LEVELS[name] * 10)

    def restore(self) -> None:
        """Put back the level that was there before. Idempotent."""
        with self._lock:
            former, self._former = self._former, None
            if former is not None:
                _logger.setLevel(former)

    @property
    def number(self) -> int:
        """What ``/config/log_level`` answers."""
        return LEVELS[self._name or "info"]
