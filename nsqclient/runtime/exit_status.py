"""``fail_exit``: makes a process that ends by itself end with another status than 0.

A function that runs at exit cannot choose the status: what it raises is printed and forgotten, and
``os._exit`` would skip the functions of others that are still to run. But the interpreter ends with
status 120 when the standard output cannot be flushed in the end. So that is what happens.
"""

from __future__ import annotations

import sys
from typing import Any


class _FailingOutput:
    """The standard output, which the interpreter cannot flush in the end."""

    def __init__(self, stream: Any, reason: str) -> None:
        self._stream = stream
        self._reason = reason

    def flush(self) -> None:
        """Flush; the interpreter, which no Python code has called, gets an error afterwards."""
        if self._stream is not None:
            self._stream.flush()
        if sys._getframe().f_back is None:
            raise RuntimeError(f"the exit status says: {self._reason}")

    def write(self, text: str) -> int:
        """Write, where there is an output."""
        return len(text) if self._stream is None else self._stream.write(text)

    @property
    def closed(self) -> bool:
        """False: a closed stream would not be flushed."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __repr__(self) -> str:
        return "nsqclient"


def fail_exit(reason: str) -> None:
    """Let the process end with status 120; call it in a function that runs at exit."""
    if not isinstance(sys.stdout, _FailingOutput):
        sys.stdout = _FailingOutput(sys.stdout, reason)
