"""Faults that a test can inject into an embedded nsqd, as ``nsqd.faults``.

The commands received are in ``nsqd.commands``. No fault is active unless a test asks for it;
``clear()`` ends all.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nsqclient.devserver.protocol.commands import (
    CommandError, Dpub, Event, Ignored, Mpub, OpenPartition, OpenTopic, Pub,
)

_NEVER = float("inf")
#: The number of received commands in the record, and the bytes of their bodies.
RECORD_SIZE = 10_000
RECORD_BYTES = 64 * 1024 * 1024


class ReceivedCommand(NamedTuple):
    """A received command: the connection's number, the command's first word, its values."""

    client: int
    name: str
    event: Event


def command_name(event: Event) -> str:
    if isinstance(event, Ignored):
        return event.line.split(b" ", 1)[0].decode("ascii", "replace")
    name = getattr(event, "command", None)  # only partitioned commands have it
    return type(event).__name__.upper() if name is None else str(name)


def _body_size(event: Event) -> int:
    if isinstance(event, (Pub, Dpub)):
        return len(event.body)
    return sum(map(len, event.bodies)) if isinstance(event, Mpub) else 0


class Faults:
    """Injects faults. Threads: every method, any thread."""

    def __init__(
        self,
        wake_all: Callable[[], None],
        drop: Callable[[str | None, bool], int],
        deliver_again: Callable[[str, str], int] = lambda topic, channel: 0,
    ) -> None:
        self._wake_all = wake_all
        self._drop = drop
        self._deliver_again = deliver_again
        self._lock = threading.Lock()
        self._commands: deque[ReceivedCommand] = deque()  # guarded by _lock
        self._recorded_bytes = 0  # size of their bodies; guarded by _lock
        self._failures: dict[str, deque[CommandError]] = {}  # guarded by _lock
        # Read by the sessions without a lock: each is one reference.
        self._delays: dict[str | None, float] = {}
        self._seed: int | None = None
        self._largest_piece = 0
        self._pause = 0.0
        self._generators: dict[int, random.Random] = {}
        #: A heartbeat is sent just before every answer.
        self.heartbeat_before_answers: bool = False
        #: No heartbeats are sent; a silent client is still dropped after two intervals.
        self.heartbeats_withheld: bool = False
        #: After a fatal error the connection is reset.
        self.reset_after_error: bool = False

    def drop_connections(self, client_id: str | None = None, *, reset: bool = False) -> int:
        """End connections now, without a frame; return how many.

        Args:
            client_id: of IDENTIFY, or the client's address; None: all connections.
            reset: with a TCP reset.
        """
        return self._drop(client_id, reset)

    def deliver_again(self, topic: str, channel: str) -> int:
        """Deliver the messages in flight of a channel once more; return how many.

        The copies have the same id and attempts, and stay in ``in_flight_count`` for ever. nsqd
        1.3.0 does this after a SIGKILL.
        """
        return self._deliver_again(topic, channel)

    def fail_next(self, command: str, code: str, text: str = "", times: int = 1) -> None:
        """Fail the next ``times`` commands of this name, without executing them.

        A fatal code ends the connection. ``text`` defaults to "... failed".
        """
        failure = CommandError(code, text or f"{command} failed")
        with self._lock:
            self._failures.setdefault(command, deque()).extend([failure] * times)

    def delay_answers(self, seconds: float, command: str | None = None) -> None:
        """Delay the answers to a command, or to all; 0 ends it.

        The command takes effect at once. Later answers on the connection keep their order.
        """
        delays = {name: delay for name, delay in self._delays.items() if name != command}
        self._delays = delays | ({command: seconds} if seconds > 0 else {})

    def hold_answers(self, command: str | None = None) -> None:
        """Hold the answers to a command, or to all, until ``release_answers()``."""
        self.delay_answers(_NEVER, command)

    def release_answers(self) -> None:
        """Send the held answers, and end all delays."""
        self._delays = {}
        self._wake_all()

    def split_frames(self, seed: int, largest: int = 7, pause: float = 0.001) -> None:
        """Write in pieces of 1 to ``largest`` bytes with a pause between them.

        The sizes depend on the seed and on the connection's number alone.
        """
        self._generators = {}
        self._largest_piece, self._pause = largest, pause
        self._seed = seed

    def clear(self) -> None:
        """End all faults and send the held answers. The record of commands stays."""
        with self._lock:
            self._failures.clear()
        self._seed = None
        self.heartbeat_before_answers = False
        self.heartbeats_withheld = False
        self.reset_after_error = False
        self.release_answers()

    @property
    def commands(self) -> list[ReceivedCommand]:
        """The received commands, oldest first; only the last ones when there are too many."""
        with self._lock:
            return list(self._commands)

    def _record(self, command: ReceivedCommand) -> None:
        """Add a command and drop the oldest ones over the limits. Needs _lock."""
        commands = self._commands
        commands.append(command)
        self._recorded_bytes += _body_size(command.event)
        while len(commands) > RECORD_SIZE or self._recorded_bytes > RECORD_BYTES:
            self._recorded_bytes -= _body_size(commands.popleft().event)

    def receive(self, client: int, event: Event) -> CommandError | None:
        if isinstance(event, (OpenTopic, OpenPartition)):
            return None  # the beginning of a publish, which is recorded once complete
        name = command_name(event)
        with self._lock:
            self._record(ReceivedCommand(client, name, event))
            failures = self._failures.get(name)
            return failures.popleft() if failures else None

    def answer_due(self, event: Event, now: float) -> float | None:
        """Return when the answer to a command may be sent; None for at once."""
        delays = self._delays
        if not delays:
            return None
        delay = delays.get(command_name(event), delays.get(None))
        return None if delay is None else now + delay

    def may_leave(self, due: float, now: float) -> bool:
        return due <= now or not self._delays

    def next_piece(self, client: int, size: int) -> tuple[int, float]:
        """Return how many of ``size`` bytes to write now, and the pause after them."""
        if self._seed is None:
            return size, 0.0
        generator = self._generators.get(client)
        if generator is None:
            generator = self._generators[client] = random.Random(self._seed * 1_000_003 + client)
        return min(size, generator.randint(1, self._largest_piece)), self._pause
