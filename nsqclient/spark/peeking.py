"""A look at a channel that leaves the messages where they are. Through the ordinary Consumer."""

from __future__ import annotations

import threading
import time

from nsqclient.consumer import Consumer
from nsqclient.errors import ConfigError, NSQError
from nsqclient.message import Message
from nsqclient.protocol.wire import RawMessage
from nsqclient.runtime.plurals import counted
from nsqclient.spark.ingest.lag import ask_backlogs
from nsqclient.spark.options import ReadOptions

#: Rows where ``maxMessages`` says nothing.
DEFAULT_ROWS = 1000
#: Seconds without any connection after which there will be none.
_PATIENCE = 5.0


def peek(options: ReadOptions) -> list[tuple[str, list[RawMessage]]]:
    """Take some messages and give them back (REQ 0); return them by nsqd.

    Their attempts grow by one, and their order may change.

    Blocks: until ``maxMessages`` came, all that waited did, or ``idleMs`` passed in silence.

    Raises:
        ConfigError: the channel has other consumers.
        NSQError: no nsqd can be reached.
    """
    wanted = options.max_messages or DEFAULT_ROWS
    backlogs = ask_backlogs(options)
    others = sum(backlog.clients for backlog in backlogs.values())
    if others and not options.allow_shared:
        raise ConfigError(
            f"channel {options.channel} of topic {options.topic} has"
            f" {counted(others, 'other connection')};"
            f" peeking would hold messages back from them: use a channel of your own, such as"
            f" peek#ephemeral, or set allowShared=true"
        )
    if backlogs:
        # Nobody can see more than there is: an empty channel needs no wait.
        wanted = min(wanted, sum(backlog.depth for backlog in backlogs.values()))
    return _Look(options, wanted).messages() if wanted else []


class _Look:
    """One look: holds messages until there are enough."""

    def __init__(self, options: ReadOptions, wanted: int) -> None:
        self._options = options
        self._wanted = wanted
        self._changed = threading.Condition()
        self._held: list[Message] = []  # guarded by _changed, as below
        self._heard = time.monotonic()
        self._is_connected = False
        self._errors: list[NSQError] = []

    def messages(self) -> list[tuple[str, list[RawMessage]]]:
        options = self._options
        config = options.config.replace(
            max_in_flight=min(self._wanted, options.config.max_in_flight),
            max_attempts=0, max_backoff_duration=0,
        )
        consumer = Consumer(
            options.topic, options.channel, self._hold, nsqd_tcp_addresses=options.nsqd,
            lookupd_http_addresses=options.lookupd, config=config,
            on_connect=self._on_connect, on_error=self._errors.append,
        )
        with consumer:
            self._wait()
            with self._changed:
                held, self._held, self._wanted = self._held[:self._wanted], self._held, 0
                back = self._held
            for message in back:
                message.requeue(0, backoff=False)
        parts: dict[str, list[RawMessage]] = {}
        for message in held:
            raw = (message.timestamp, message.attempts, message.id, message.body)
            parts.setdefault(message.nsqd_address, []).append(raw)
        return list(parts.items())

    def _hold(self, message: Message) -> None:
        with self._changed:
            if self._wanted:
                message.enable_async()
                self._held.append(message)
                self._heard = time.monotonic()
                self._changed.notify()
                return
        message.requeue(0, backoff=False)  # too late: the look is over

    def _on_connect(self, address: str) -> None:
        with self._changed:
            self._is_connected = True
            self._heard = time.monotonic()

    def _wait(self) -> None:
        with self._changed:
            while len(self._held) < self._wanted:
                silence = time.monotonic() - self._heard
                if not self._is_connected:
                    if silence >= _PATIENCE:
                        raise self._errors[-1] if self._errors else NSQError("no nsqd was found")
                elif silence >= self._options.idle_ms:
                    return
                self._changed.wait(0.1)
