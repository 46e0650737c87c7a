"""``PageCache``: answers that open pages share.

Many users watch the same few pages: an answer is built once for each round of the collector.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

#: Bytes of all answers and paths that are kept, and their number: anybody can request paths.
_MOST_BYTES = 8 * 1024 * 1024
_MOST_ANSWERS = 1000


class PageCache:
    """Answers by path, as long as the data has not changed. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: Hashable = None  # guarded by _lock, as the others
        self._answers: dict[str, bytes] = {}
        self._size = 0

    def get(self, path: str, version: Hashable) -> bytes | None:
        """Return the answer of a path that was built from a version of the data; else None."""
        with self._lock:
            return self._answers.get(path) if version == self._version else None

    def put(self, path: str, version: Hashable, answer: bytes) -> None:
        """Keep an answer; those of other versions are dropped."""
        with self._lock:
            if version != self._version:
                self._version, self._answers, self._size = version, {}, 0
            if path in self._answers or len(self._answers) >= _MOST_ANSWERS:
                return
            size = len(path) + len(answer)
            if self._size + size <= _MOST_BYTES:
                self._answers[path] = answer
                self._size += size
