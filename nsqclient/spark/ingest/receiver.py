"""``Receiver``: the spool and what fills it, as Spark's readers use them.

``nsq-lag`` is its only thread: it asks nsqds for their depth, so that no call of Spark waits for
an HTTP answer.
"""

from __future__ import annotations

import logging
import threading
import time

from nsqclient.errors import NSQError
from nsqclient.runtime.plurals import counted
from nsqclient.spark.ingest.children import Children
from nsqclient.spark.ingest.draining import Drain, Progress
from nsqclient.spark.ingest.ingest import Ingest
from nsqclient.spark.ingest.lag import Backlog, ask_backlogs, is_topic_unknown
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.spool.spool import Spool

logger = logging.getLogger("nsqclient.spark")

#: Seconds between two questions for the depth, in general and at the end of a drain.
_LAG_INTERVAL, _DRAIN_INTERVAL = 2.0, 0.3
#: Part of its limit that a full spool must fall under before more is taken.
_RESUME = 0.8
#: nsqd looks for timed out messages on a channel up to this many seconds late.
_LATE = 6.0


class Receiver:
    """Brings messages into a spool.

    Life: created (nothing is touched), ``open()``, ``stop()``. Threads: one uses it; ``stop`` any.

    Args:
        options: of the source.
        spool_dir: where, if not ``options.spool_dir``.
        limit: messages to take at most.
    """

    def __init__(
        self, options: ReadOptions, spool_dir: str = "", limit: int | None = None
    ) -> None:
        self.options = options
        self._limit = limit
        config = options.config
        patience = min(config.read_timeout, 2 * config.heartbeat_interval)
        self.spool = Spool(
            spool_dir or options.spool_dir, options.topic, options.channel, 2 * patience
        )
        self._ingest: Ingest | Children | None = None
        self._lock = threading.Lock()
        self._error: NSQError | None = None  # by _lock
        #: When the nsqds were asked last, and what they said. Replaced, never changed.
        self._seen: tuple[float, dict[str, Backlog]] = (0.0, {})
        self._is_unknown = False  # nobody has the topic; by nsq-lag alone
        self._drain: Drain | None = None
        self._started = 0.0
        self._resumed = 0.0  # when the flow went on after the spool was full
        self._is_full = False
        self._lag_thread: threading.Thread | None = None
        self._end = threading.Event()

    # -- life

    def prepare_drain(self) -> None:
        """From now on take what is there now, and end then. Before ``open()``."""
        backlogs = ask_backlogs(self.options)
        target = sum(b.depth + b.in_flight for b in backlogs.values()) if backlogs else None
        logger.info(
            "drain: to come: %s", "unknown" if target is None else counted(target, "message"))
        self._drain = Drain(
            target, self.options.idle_ms, self.options.config.msg_timeout + _LATE
        )

    def open(self, at_least: int = 0) -> None:
        """Open the spool and start to fill it. Idempotent.

        Raises:
            SpoolError: see ``Spool.open``.
        """
        if self._ingest is not None:
            return
        self.spool.open(at_least, self.options.fail_on_data_loss)
        self._started = time.monotonic()
        if self.options.ingest_processes > 1 and self._limit is None:
            self._ingest = Children(self.options, self.spool, self.balance, self._on_failed)
        else:
            self._ingest = Ingest(
                self.options, self.spool, on_stored=self.balance, on_failed=self._on_failed,
                limit=self._limit,
            )
        self._ingest.start()
        self._lag_thread = threading.Thread(target=self._watch_lag, name="nsq-lag", daemon=True)
        self._lag_thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish what has come, give the rest back, let the spool go. Idempotent."""
        self._end.set()
        if self._ingest is not None:
            self._ingest.stop(timeout)
        if self._lag_thread is not None:
            self._lag_thread.join(1.0)
        self.spool.close()

    def check(self) -> None:
        """Raise what has stopped the ingest, if something has."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error

    def _on_failed(self, error: NSQError) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
        self.spool.wake()

    # -- back-pressure

    def balance(self) -> None:
        """Stop the flow when the spool is full, and let it go on when Spark has caught up."""
        rows, size = self.spool.waiting
        options = self.options
        part = max(rows / options.max_spool_messages, size / options.max_spool_bytes)
        if part >= 1:
            self._is_full = True
        elif part < _RESUME and self._is_full:
            self._is_full = False
            self._resumed = time.monotonic()
        if self._ingest is not None:
            with self._lock:
                failed = self._error is not None
            self._ingest.set_paused(self._is_full or failed)

    @property
    def is_full(self) -> bool:
        """Tell whether the flow is stopped because Spark is behind."""
        return self._is_full

    # -- the end of a drain

    @property
    def is_draining(self) -> bool:
        """Tell whether ``prepare_drain`` was called."""
        return self._drain is not None

    def drain_is_over(self) -> bool:
        """Tell whether all that was there has come; stops the ingest then.

        Raises:
            NSQError: no nsqd can be reached at all, or the ingest failed.
        """
        self.check()
        ingest, drain = self._ingest, self._drain
        assert ingest is not None and drain is not None
        if self._end.is_set():
            return True
        now = time.monotonic()
        last = max(ingest.last_arrival, self._started, self._resumed)
        asked, backlogs = self._seen
        progress = Progress(
            stored=ingest.stored,
            # A silence that we have asked for says nothing.
            silence=0.0 if self._is_full else now - last,
            is_connected=ingest.connections > 0,
            dials_failed=ingest.dials_failed,
            is_idle=ingest.is_idle,
            waiting=sum(b.depth for b in backlogs.values()) if backlogs else None,
            out=sum(b.in_flight for b in backlogs.values()) if backlogs else None,
            is_stale=bool(backlogs) and asked <= last,
            is_unknown=self._is_unknown,
        )
        if drain.is_hopeless(progress, now - self._started):
            raise ingest.last_error or NSQError("no nsqd could be reached")
        is_full = self._limit is not None and ingest.stored >= self._limit
        if not is_full and not drain.is_over(progress):
            return False
        self._tell_rest(progress, is_full)
        self._end.set()
        ingest.stop()
        self.check()
        return True

    def _tell_rest(self, progress: Progress, is_full: bool) -> None:
        """Say it where a drain ends although nobody has taken all."""
        options = self.options
        if progress.is_unknown and not progress.is_connected:
            logger.warning("no nsqd has the topic %s, says nsqlookupd: nothing to read",
                           options.topic)
        elif progress.waiting and not is_full and not progress.is_stale:
            logger.warning(
                "%s/%s: nothing came for %.0f s, though there are more: is the channel paused? Left"
                " for the next run: %s", options.topic, options.channel, progress.silence,
                counted(progress.waiting, "message"))

    # -- for the progress

    def lag(self) -> dict[str, object]:
        """What the progress of the query says about the source."""
        rows, size = self.spool.waiting
        return {
            "depth": {address: b.depth for address, b in self._seen[1].items()},
            "in_flight": 0 if self._ingest is None else self._ingest.in_flight,
            "connections": 0 if self._ingest is None else self._ingest.connections,
            "spool_messages": rows,
            "spool_bytes": size,
            "redelivered": self.spool.redelivered,
            "duplicates_dropped": self.spool.copies_dropped,
            "drained": self._drain is not None and self._end.is_set(),
        }

    def _watch_lag(self) -> None:
        interval = _LAG_INTERVAL if self._drain is None else _DRAIN_INTERVAL
        while True:
            asked = time.monotonic()
            try:
                backlogs = ask_backlogs(self.options)
            except Exception:
                logger.exception("the depth could not be asked for; the query goes on")
                backlogs = {}
            if self._drain is not None and not backlogs:
                self._is_unknown = is_topic_unknown(self.options)
            self._seen = (asked, backlogs)
            if self._end.wait(interval):
                return
