"""Wakes a thread that sleeps in ``poll``."""

from __future__ import annotations

import socket
import threading


class Bell:
    """One sleeper, any number of ringers; many rings before it wakes are one.

    A ring to a thread that is awake costs no system call. The sleeper's order is: ``arm()``,
    look for work once more, poll, ``disarm()``.
    """

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._lock = threading.Lock()
        self._is_silent = True  # guarded by _lock; rung already, or nobody sleeps
        self._is_closed = False  # guarded by _lock

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._near.fileno()

    def ring(self) -> None:
        """Wake the sleeper. Any thread; does nothing after ``close()``."""
        with self._lock:
            if not self._is_silent:
                self._is_silent = True
                self._far.send(b"!")

    def arm(self) -> None:
        """From now on a ring wakes."""
        with self._lock:
            self._is_silent = self._is_closed

    def disarm(self) -> None:
        """Be awake: forget a ring that came, ignore those to come."""
        with self._lock:
            was_rung, self._is_silent = self._is_silent, True
            if was_rung:
                self._near.recv(1)

    def close(self) -> None:
        """Give the descriptors back."""
        with self._lock:
            self._is_silent = self._is_closed = True
            self._near.close()
            self._far.close()
