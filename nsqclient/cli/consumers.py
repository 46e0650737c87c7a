"""``Consumers``: the consumers of one tool, from the start to the stop; its dead-letter topic."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient import (
    Config, Consumer, DeadLetterTopic, DiscoveryError, Message, NSQError, Producer,
)
from nsqclient.cli.goflags import CommandLineError
from nsqclient.cli.signals import Signals

#: Seconds that running handlers have to end, as in the originals.
STOP_TIMEOUT = 30.0


class _ToolConsumer(Consumer):
    """A consumer that ends with its tool when no nsqd that was named can be reached."""

    def __init__(self, *args: Any, survives: Callable[[], bool], **options: Any) -> None:
        super().__init__(*args, **options)
        self._survives = survives

    def _is_dial_retried(self, error: NSQError) -> bool:
        return self._survives()


class Consumers:
    """The consumers of one tool: started together, stopped together.

    Args:
        values: of the flags of ``add_sources``.
        config: for all of them.
        signals: its stop ends them; a failed start stops it.

    Threads: ``run`` in the thread of ``signals``, the rest in any.
    """

    def __init__(self, values: Mapping[str, Any], config: Config, signals: Signals) -> None:
        self._nsqds: list[str] = list(dict.fromkeys(values["nsqd-tcp-address"]))
        self._lookupds: list[str] = values["lookupd-http-address"]
        self._config = config
        self._signals = signals
        self._lock = threading.Lock()
        self._all: list[Consumer] = []  # guarded by _lock, as the rest
        self._connected = False
        self._failures: dict[str, NSQError] = {}
        self._started = False

    def add(
        self, topic: str, channel: str, handler: Callable[[Message], Any], **options: Any
    ) -> Consumer:
        """Make a consumer, and start it if the others run; ``options`` are the Consumer's."""
        # As an argument it holds on partitioned topics too, also where it is 1.
        options.setdefault("max_in_flight", self._config.max_in_flight)
        consumer = _ToolConsumer(
            topic, channel, handler, config=self._config, nsqd_tcp_addresses=self._nsqds,
            lookupd_http_addresses=self._lookupds, on_connect=self._on_connect,
            on_error=self._on_error, survives=self._survives, **options,
        )
        with self._lock:
            self._all.append(consumer)
            started = self._started
        if started:
            consumer.start()
        return consumer

    def remove(self, consumer: Consumer) -> None:
        """Stop one of them and forget it. Blocks: as ``stop``."""
        with self._lock:
            self._all.remove(consumer)
        consumer.stop(STOP_TIMEOUT)

    def run(self) -> None:
        """Start all, wait until ``signals`` asks for the end, and stop all.

        Raises:
            CommandLineError: no nsqd that was named could be reached at the start.
        """
        with self._lock:
            self._started = True
            consumers = list(self._all)
        for consumer in consumers:
            consumer.start()
        while not self._signals.wait():
            pass
        self.stop()
        with self._lock:
            failures = [] if self._connected else list(self._failures.values())
        if failures and len(failures) >= len(self._nsqds):
            raise CommandLineError("; ".join(map(str, failures)))

    def limit_in_flight(self, count: int) -> None:
        """Let each consumer have no more than ``count`` messages at once from now on."""
        with self._lock:
            consumers = list(self._all)
        for consumer in consumers:
            if count < consumer.max_in_flight:
                consumer.set_max_in_flight(count)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop all at once. Idempotent. Blocks: until running handlers end, or ``timeout``."""
        with self._lock:
            consumers = list(self._all)
        threads = [
            threading.Thread(
                target=consumer.stop, args=(timeout,), name="nsq-tool-stop", daemon=True)
            for consumer in consumers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _on_connect(self, address: str) -> None:
        with self._lock:
            self._connected = True

    def _survives(self) -> bool:
        """Return whether consumers go on after a failed dial; else ``_on_error`` decides."""
        with self._lock:
            return self._connected or not self._nsqds

    def _on_error(self, error: NSQError) -> None:
        """Stop the tool when no nsqd that was given could be reached at the start."""
        with self._lock:
            if self._connected or not self._nsqds or isinstance(error, DiscoveryError):
                return
            # Errors of a negotiation name no address; each address fails once before any twice.
            self._failures[getattr(error, "address", str(len(self._failures)))] = error
            all_failed = len(self._failures) >= len(self._nsqds)
        if all_failed:
            self._signals.stop()


def make_dead_letters(
    values: Mapping[str, Any], config: Config, stack: contextlib.ExitStack
) -> DeadLetterTopic:
    """Build the publisher of ``--dead-letter-topic``, on the nsqds that messages come from.

    Its producer is closed when ``stack`` ends.
    """
    producer = Producer(
        nsqd_tcp_addresses=list(dict.fromkeys(values["nsqd-tcp-address"])),
        lookupd_http_addresses=values["lookupd-http-address"], config=config,
    )
    stack.callback(producer.close)
    return DeadLetterTopic(
        producer, values["dead-letter-topic"], envelope=values["dead-letter-envelope"])
