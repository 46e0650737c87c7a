"""``Receiver``: the spool and the ingest that fills it, as Spark's readers use them.

``nsq-lag`` is its only thread: it asks nsqds for their depth, so that no call of Spark waits for
an HTTP answer, tries whether a full disk has space again, and looks for strays.
"""

from __future__ import annotations

import logging
import threading
import time

from nsqclient.display import counted
from nsqclient.consumer.drain_decision import DrainRules, NsqdState, Step
from nsqclient.errors import ConfigError, NSQError
from nsqclient.http.channel_depth import ChannelDepths
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.silence import Silence
from nsqclient.spark.errors import SpoolError
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest.channel_depth import make_query
from nsqclient.spark.ingest.draining import Drain, Progress
from nsqclient.spark.ingest.ingest import Ingest
from nsqclient.spark.ingest.worker_processes import WorkerProcesses
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.spool.offsets import COMMITTED, Bound
from nsqclient.spark.spool.retention import Retention
from nsqclient.spark.spool.spool import Spool

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two questions for the depth, in general and at the end of a drain.
_LAG_INTERVAL, _DRAIN_INTERVAL = 2.0, 0.3
#: Part of its limit that a full spool must fall under before more is taken.
_RESUME = 0.8
#: Seconds for which a drain waits for space on a full disk, once Spark has read all that is stored.
_SPACE_PATIENCE = 10.0
#: The most seconds between two looks of a drain that count as time of waiting.
_LONGEST_LOOK = 0.5
#: Seconds without a message, after a connection was opened, in which the first ones come.
_FIRST_SILENCE = 0.5


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
        self.spool: Spool = Spool(
            spool_dir or options.spool_dir, options.topic, options.channel, 2 * patience,
            retention=Retention(options.spool_retention_ms, options.spool_retention_bytes),
        )
        self._ingest: Ingest | WorkerProcesses | None = None
        self._lock = threading.Lock()
        self._error: NSQError | None = None  # by _lock
        #: When the nsqds were asked last, and what they said. Replaced by _lock, never changed.
        self._seen: tuple[float, ChannelDepths] = (0.0, ChannelDepths())
        self._asking = threading.Lock()  # a thread uses _query
        self._query = make_query(options)
        self._drain: Drain | None = None
        self._silence = Silence(_LONGEST_LOOK)
        self._started = 0.0
        self._resumed = 0.0  # when the flow went on after the spool was full
        self._is_full = False
        self._lag_thread: threading.Thread | None = None
        self._end = threading.Event()

    # -- life

    def prepare_drain(self) -> None:
        """Read what is there now, and end then. Call it before ``open()``.

        Raises:
            ConfigError: an nsqd cannot be asked for its depth, and ``idleMs`` is not set.
            NSQError: see ``check_handshakes``; a drain of nothing would not connect otherwise.
        """
        options = self.options
        check_handshakes(options.nsqd, options.lookupd, options.topic, options.config)
        depths = self._query.fetch()
        if depths.without_http and not options.idle_ms:
            raise ConfigError(
                "a drain asks each nsqd at its HTTP port whether the channel is empty, and the HTTP"
                f" address of {', '.join(depths.without_http)} is not known: set nsqdHttp or"
                " lookupd; or idleMs, which allows an end by silence that is not verified")
        target = depths.waiting + depths.in_flight if depths.is_complete else None
        logger.info(
            "drain: reading %s",
            "an unknown number of messages" if target is None else counted(target, "message"))
        self._drain = Drain(target, DrainRules(
            options.config.drain_patience, options.idle_ms or None))
        # availableNow has no asynchronous progress tracking: a commit is noted when we hear of it.
        self.spool.noted_after = 0.0

    def open(self, at_least: int = 0, position: int | Bound = COMMITTED) -> None:
        """Open the spool and start to fill it. Idempotent.

        Args: as for ``Spool.open``.

        Raises:
            SpoolError: see ``Spool.open``.
        """
        if self._ingest is not None:
            return
        self.spool.open(at_least, self.options.fail_on_data_loss, position=position)
        self._started = time.monotonic()
        if self.options.ingest_processes > 1 and self._limit is None:
            self._ingest = WorkerProcesses(self.options, self.spool, self.balance, self._on_failed)
        else:
            self._ingest = Ingest(
                self.options, self.spool, on_stored=self.balance, on_failed=self._on_failed,
                limit=self._limit,
            )
        self._ingest.start()
        self.balance()
        self._lag_thread = threading.Thread(target=self._watch_lag, name="nsq-lag", daemon=True)
        self._lag_thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish what has come, requeue the rest, close the spool. Idempotent."""
        self._end.set()
        if self._ingest is not None:
            self._ingest.stop(timeout)
        if self._lag_thread is not None:
            self._lag_thread.join(1.0)
        self.spool.close()

    def check(self) -> None:
        """Raise the error that has stopped the ingest, if there is one."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error

    def _on_failed(self, error: NSQError) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
        self.spool.wake()

    def wait_for_first(self, number: int, timeout: float) -> None:
        """Wait for a segment after ``number``, where a connection is to be opened first.

        Blocks: until there is one, or an nsqd is connected and sends nothing, or the disk is full;
            at most ``timeout``.

        Raises:
            NSQError: the ingest has failed.
        """
        ingest, deadline = self._ingest, Deadline(timeout)
        assert ingest is not None
        while not self.spool.wait_for_more(number, 0.05) and not deadline.expired():
            self.check()
            is_connected = ingest.connections > 0  # first: it changes after last_arrival
            is_silent = time.monotonic() - ingest.last_arrival >= _FIRST_SILENCE
            # What has come may not be stored yet: the first segment imports pyarrow.
            if is_connected and is_silent and (ingest.is_idle or self.is_full):
                return

    # -- back-pressure

    def balance(self) -> None:
        """Pause the flow when the spool is full, and resume it when Spark has caught up."""
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
            self._ingest.set_paused(self.is_full or failed)

    @property
    def is_full(self) -> bool:
        """Return whether the flow is stopped: Spark is behind, or the disk is full."""
        return self._is_full or self.spool.full_error is not None

    def _keep_spool(self) -> None:
        """Look for strays; resume the flow when a full disk has space again."""
        try:
            self.spool.look_for_strays()
            if self.spool.full_error is None or not self.spool.retry():
                return
        except SpoolError as exc:
            self._on_failed(exc)
        else:
            self._resumed = time.monotonic()
            self.balance()

    # -- the end of a drain

    @property
    def is_draining(self) -> bool:
        """Return whether ``prepare_drain`` was called."""
        return self._drain is not None

    def drain_is_over(self) -> bool:
        """Return whether all that was there has come; stops the ingest then.

        Raises:
            NSQError: no nsqd can be reached at all, or the ingest failed.
        """
        self.check()
        ingest, drain = self._ingest, self._drain
        assert ingest is not None and drain is not None
        if self._end.is_set():
            return True
        now = time.monotonic()
        is_connected = ingest.connections > 0  # first: it changes after last_arrival
        last = max(ingest.last_arrival, self._started, self._resumed)
        asked, depths = self._seen
        progress = Progress(
            stored=ingest.stored - self.spool.copies_dropped,
            last_arrival=last,
            # While the flow is paused no message is expected.
            silence=self._silence.watch(now if self.is_full else last, now),
            is_connected=is_connected,
            is_idle=ingest.is_idle,
        )
        if asked:
            drain.note(asked, depths, now)
        is_full = self._limit is not None and ingest.stored >= self._limit
        step = Step.END if is_full else drain.decide(progress, now)
        if step in (Step.WAIT, Step.FLUSH):
            return False
        if step is Step.FAIL_STUCK or step is Step.FAIL_WITHOUT_HTTP:
            raise self._failure(drain.nsqds(progress, now), depths, ingest.last_error)
        self._log_end(step, depths, is_full or drain.has_reached_target(progress))
        self._end.set()
        ingest.stop()
        self._look()  # so that the last progress has what is left, now that every FIN was read
        self.check()
        return True

    def _failure(
        self, nsqds: tuple[NsqdState, ...], depths: ChannelDepths, cause: NSQError | None
    ) -> NSQError:
        options = self.options
        patience = options.config.drain_patience
        stuck = "; ".join(
            f"{one.address}: {one.waiting} wait and do not come" if one.waiting else
            f"{one.address}: {depths.unknown.get(one.address, 'no answer')}"
            for one in nsqds if one.stuck >= patience or not one.has_http)
        error = NSQError(
            f"{options.topic}/{options.channel}: a drain could not see that the channel is empty"
            f" for {patience:g} s (drain_patience): {stuck}"
            + (f"; the last failure: {cause}" if cause else ""))
        error.__cause__ = cause
        return error

    def _log_end(self, step: Step, depths: ChannelDepths, has_enough: bool) -> None:
        """Log what a drain leaves, or cannot know."""
        options = self.options
        if step is Step.FAIL_UNKNOWN_TOPIC:
            logger.warning("nsqlookupd lists no nsqd with the topic %s: nothing to read",
                           options.topic)
        elif step is Step.END_UNKNOWN:
            logger.warning(
                "%s/%s: the depth is unknown, so the read ends after %g s without a message"
                " (idleMs): %s", options.topic, options.channel, options.idle_ms,
                "; ".join(f"{address}: {why}" for address, why in depths.unknown.items()))
        elif depths.paused and not has_enough:
            logger.warning(
                "%s/%s: the channel or the topic is paused. Left for the next run: %s",
                options.topic, options.channel, counted(depths.paused, "message"))

    def check_space(self, waiting_since: float = 0.0) -> None:
        """Raise the error of a disk that stays full: a drain has an end, and nothing to do.

        Raises:
            SpoolFullError: it has been full for long, while the caller waited.
        """
        error = self.spool.full_error
        waited = time.monotonic() - waiting_since
        if error is not None and min(self.spool.full_for, waited) >= _SPACE_PATIENCE:
            raise error

    # -- for the progress

    def lag(self) -> dict[str, object]:
        """What the progress of the query says about the source."""
        rows, size = self.spool.waiting
        depths = self._seen[1]
        return {
            "depth": {address: b.depth for address, b in depths.known.items()},
            "depth_unknown": list(depths.unknown),
            "in_flight": 0 if self._ingest is None else self._ingest.in_flight,
            "connections": 0 if self._ingest is None else self._ingest.connections,
            "spool_messages": rows,
            "spool_bytes": size,
            "disk_full": self.spool.full_error is not None,
            "redelivered": self.spool.redelivered,
            "duplicates_dropped": self.spool.copies_dropped,
            "drained": self._drain is not None and self._end.is_set(),
        }

    def _watch_lag(self) -> None:
        interval = _LAG_INTERVAL if self._drain is None else _DRAIN_INTERVAL
        while True:
            try:
                self._look()
            except Exception:
                logger.exception("the request for the depth failed; the query continues")
            self._keep_spool()
            if self._end.wait(interval):
                return

    def _look(self) -> None:
        """Ask the nsqds for their depth. Blocks: see ``DepthQuery.fetch``."""
        asked = time.monotonic()
        with self._asking:
            depths = self._query.fetch()
        with self._lock:
            if asked >= self._seen[0]:
                self._seen = (asked, depths)
