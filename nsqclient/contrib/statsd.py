"""``StatsdSink``: consumers and producers for statsd, over UDP.

Counters are sent as differences (``|c``), states as gauges (``|g``), and histograms as the count of
new values (``|c``) with their median and 99th percentile in milliseconds (``|g``).
Labels are parts of the name: ``nsq.consumer.finished.orders.mail``.
"""

from __future__ import annotations

import logging
import re
import socket
import threading

from nsqclient.contrib.metrics_registry import Family, MetricsRegistry
from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.runtime.fork import register_for_fork
from nsqclient.runtime.histogram import HistogramSnapshot
from nsqclient.runtime.lock import Lock

logger = logging.getLogger("nsqclient.statsd")

#: Bytes of a datagram that every network transmits; nsqd's default is 508 too.
_DATAGRAM = 508
#: Seconds that close() waits for the thread, which may be resolving the host's name.
_JOIN = 2.0


class StatsdSink(MetricsRegistry):
    """Sends the counters of its consumers and producers, every ``interval``.

    Args:
        address: ``host:port`` of statsd; its name is resolved each time.
        prefix: of each name; ``%s`` in it is replaced with the host name.
        interval: seconds between two transmissions.

    Raises:
        ConfigError: an argument is invalid.

    Life: created, ``start()`` (or ``with``), ``close()``, which sends a last time. When sending
    fails, the samples are dropped, with a warning for the first failure in a row. In a forked child
    it is as after its creation.
    Threads: any.
    """

    def __init__(
        self, address: str = "127.0.0.1:8125", prefix: str = "", interval: Duration = 10.0
    ) -> None:
        super().__init__()
        self._address = parse_address(address, "statsd address")
        self._prefix = prefix.replace("%s", _word(socket.gethostname()))
        if self._prefix and not self._prefix.endswith("."):
            self._prefix += "."
        self._interval = to_seconds(interval, "interval")
        if self._interval <= 0:
            raise ConfigError("interval must be more than 0")
        self._before: dict[str, float | HistogramSnapshot] = {}
        self._has_failed = False
        self._sending = Lock()
        self._begin()
        register_for_fork(self)

    def _begin(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def _reset_after_fork(self) -> None:
        """For the library: the thread is the parent's."""
        self._lock, self._sending = Lock(), Lock()
        self._before = {}
        self._begin()

    def start(self) -> StatsdSink:
        """Start the thread. Idempotent."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nsq-statsd", daemon=True)
                self._thread.start()
        return self

    def close(self) -> None:
        """Send a last time, and end the thread. Idempotent.

        Blocks: two seconds at most.
        """
        self._over.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN)

    def __enter__(self) -> StatsdSink:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def send(self) -> int:
        """Send now; return the number of lines. For programs with their own loop."""
        with self._sending:
            lines = [line for family in self.families() for line in self._lines(family)]
            try:
                self._transmit(lines)
            except OSError as exc:
                level = logging.DEBUG if self._has_failed else logging.WARNING
                logger.log(level, "statsd %s:%d: not sent: %s", *self._address, exc)
                self._has_failed = True
                return 0
            self._has_failed = False
            return len(lines)

    def _run(self) -> None:
        while True:
            is_last = self._over.wait(self._interval)
            try:
                self.send()
            except Exception:
                logger.exception("statsd: a sample could not be taken")
            if is_last:
                return

    def _transmit(self, lines: list[str]) -> None:
        host, port = self._address
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            datagram = b""
            for line in map(str.encode, lines):
                if datagram and len(datagram) + 1 + len(line) > _DATAGRAM:
                    sock.sendto(datagram, target)
                    datagram = b""
                datagram += b"\n" + line if datagram else line
            if datagram:
                sock.sendto(datagram, target)

    def _lines(self, family: Family) -> list[str]:
        lines = []
        for labels, value in family.samples:
            name = ".".join([
                self._prefix + family.name.replace("nsq_consumer_", "nsq.consumer.").replace(
                    "nsq_producer_", "nsq.producer."),
                *map(_word, labels),
            ])
            before = self._before.get(name)
            if isinstance(value, HistogramSnapshot):
                since = value.since(before) if isinstance(before, HistogramSnapshot) else value
                if since.count:
                    lines.append(f"{name}.count:{since.count}|c")
                    for part, suffix in ((0.5, "p50"), (0.99, "p99")):
                        lines.append(f"{name}.{suffix}:{since.quantile(part) * 1000:g}|g")
            elif family.kind == "counter":
                since_before = value - (before if isinstance(before, (int, float)) else 0)
                if since_before:
                    lines.append(f"{name}:{since_before:.0f}|c")
            else:
                lines.append(f"{name}:{value:g}|g")
            self._before[name] = value
        return lines


def _word(text: str) -> str:
    """Make a part of a name; dots would make two of it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
