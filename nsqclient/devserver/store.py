"""Stored messages, and where they are kept: memory up to a limit, then a backend.

Pure: a backend that writes files comes in from :mod:`nsqclient.devserver.persistence`.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class StoredMessage:
    """One message of one topic or channel; each channel has a copy of its own.

    ``timestamp`` in ns since the epoch, ``deferral`` in seconds still to be waited when it
    reaches a channel, ``deadline`` on the clock of ``now``.
    """

    __slots__ = (
        "id", "timestamp", "body", "attempts", "deferral", "owner", "delivered_at", "deadline"
    )

    def __init__(
        self, message_id: bytes, timestamp: int, body: bytes, attempts: int = 0, deferral: float = 0
    ) -> None:
        self.id = message_id
        self.timestamp = timestamp
        self.body = body
        self.attempts = attempts
        self.deferral = deferral
        self.owner = 0  # number of the consumer that has it in flight
        self.delivered_at = 0.0
        self.deadline = 0.0

    def copy(self) -> StoredMessage:
        """Return the copy for a further channel."""
        return StoredMessage(self.id, self.timestamp, self.body, 0, self.deferral)


class Backend(Protocol):
    """Where messages go that have no room in memory: a file, or nothing for ephemerals."""

    @property
    def depth(self) -> int:
        """How many messages it holds."""
        ...

    def put(self, message: StoredMessage) -> None:
        """Add a message at the end. Raises OSError when it cannot be stored."""
        ...

    def get(self) -> StoredMessage:
        """Remove and return the first message; only while ``depth`` is not 0."""
        ...

    def peek(self) -> list[StoredMessage]:
        """Return copies of all messages."""
        ...

    def clear(self) -> None:
        """Forget all messages."""
        ...

    def close(self) -> None:
        """Keep what is stored for the next start."""
        ...

    def delete(self) -> None:
        """Remove every trace."""
        ...


class MemoryBackend:
    """A backend without a disk: it holds any number, and only counts as one."""

    def __init__(self) -> None:
        self._messages: deque[StoredMessage] = deque()

    @property
    def depth(self) -> int:
        """How many messages it holds."""
        return len(self._messages)

    def put(self, message: StoredMessage) -> None:
        """Add a message; its deferral is lost, as on nsqd's disk."""
        message.deferral = 0
        self._messages.append(message)

    def get(self) -> StoredMessage:
        """Remove and return the first message."""
        return self._messages.popleft()

    def peek(self) -> list[StoredMessage]:
        """Return all messages."""
        return list(self._messages)

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()

    def close(self) -> None:
        """Do nothing: memory ends with the process."""

    def delete(self) -> None:
        """Forget all messages."""
        self._messages.clear()


class NullBackend(MemoryBackend):
    """The backend of ephemerals: what does not fit in memory is dropped."""

    def put(self, message: StoredMessage) -> None:
        """Drop the message."""


class MessageQueue:
    """Messages in memory up to a limit, then in a backend; first in, first out.

    nsqd reads memory and disk in random order. Ours keeps the order, so nothing starves.
    """

    __slots__ = ("memory", "backend", "_limit")

    def __init__(self, limit: int, backend: Backend) -> None:
        self.memory: deque[StoredMessage] = deque()
        self.backend = backend
        self._limit = limit

    def __len__(self) -> int:
        return len(self.memory) + self.backend.depth

    def put(self, message: StoredMessage) -> None:
        """Add at the end. A deferred message prefers memory: on disk its deferral is lost."""
        memory = self.memory
        if len(memory) < self._limit and (not self.backend.depth or message.deferral):
            memory.append(message)
        else:
            self.backend.put(message)

    def get(self) -> StoredMessage:
        """Remove and return the first; only when it is not empty."""
        return self.memory.popleft() if self.memory else self.backend.get()

    def peek(self) -> list[StoredMessage]:
        """Return all messages in order."""
        return [*self.memory, *self.backend.peek()]

    def clear(self) -> None:
        """Forget all messages."""
        self.memory.clear()
        self.backend.clear()
