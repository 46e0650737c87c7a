"""``Receiver``: the owners that the driver runs itself, for a query or a drain.

Its only thread, ``nsq-receiver``, discovers nsqds, tends their owners, and asks the nsqds for their
depth, so that no call of Spark waits for an HTTP response.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.consumer.connections import NsqdSources
from nsqclient.consumer.drain_decision import ChannelDepths, DrainDecision, DrainRules, Step
from nsqclient.display import counted
from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.ingest import Ingest, Quota
from nsqclient.spark.options import ReadOptions
from nsqclient.spark.shards.owners import ShardOwners
from nsqclient.spark.storage import Store

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Seconds between two requests for the depth, of a stream and of a drain.
_LAG_INTERVAL, _DRAIN_INTERVAL = 2.0, 0.3
#: Seconds that a drain waits for space on a full disk.
_SPACE_PATIENCE = 10.0
#: Longer intervals between two checks of a drain count only this many seconds as waiting.
_LONGEST_LOOK = 0.5
#: Seconds in which the first messages of a new connection arrive.
_FIRST_SILENCE = 0.5


class Receiver:
    """Receives messages from nsqds into their logs. Threads: one; ``stop`` any."""

    def __init__(
        self, options: ReadOptions, store: Store, on_stored: Callable[[], None],
        limit: int | None = None,
    ) -> None:
        self._options = options
        self._quota = None if limit is None else Quota(limit)
        self._notify_stored = on_stored
        self._owners = ShardOwners(
            options, store, is_alone=True, on_stored=on_stored, quota=self._quota)
        self._lock = threading.Lock()
        self._error: NSQError | None = None  # guarded by _lock
        #: The last answers of the nsqds, and when they were asked. Replaced under _lock.
        self._seen: tuple[float, ChannelDepths] = (0.0, ChannelDepths())
        self._asking = threading.Lock()  # guards _query
        self._query = DepthQuery(
            options.topic, options.channel, options.config,
            NsqdSources(options.nsqd, options.lookupd, nsqd_http=options.nsqd_http))
        self._drain: ReceiverDrain | None = None
        self._started = 0.0
        self._full_since = 0.0  # 0: no disk is full
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nsq-receiver", daemon=True)

    # -- lifecycle

    def prepare_drain(self) -> None:
        """Let the receiver end when the messages of now are stored. Call it before ``open()``."""
        options = self._options
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
        self._drain = ReceiverDrain(target, DrainRules(
            options.config.drain_patience, options.idle_ms or None))

    def open(self) -> None:
        self._started = time.monotonic()
        self._owners.open()
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Store and finish the received messages, requeue later ones, close. Idempotent."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._owners.stop(timeout)

    def check(self) -> None:
        with self._lock:
            error = self._error
        if error is not None:
            raise error

    def _watch(self) -> None:
        interval = _LAG_INTERVAL if self._drain is None else _DRAIN_INTERVAL
        while True:
            try:
                self._look()
                self._owners.tend()
            except NSQError as exc:
                with self._lock:
                    self._error = self._error or exc
                self._notify_stored()
            except Exception:
                logger.exception("looking after owners failed; the query continues")
            if self._end.wait(interval):
                return

    def _look(self) -> None:
        """Ask the nsqds for their depth."""
        asked = time.monotonic()
        with self._asking:
            depths = self._query.fetch()
        with self._lock:
            if asked >= self._seen[0]:
                self._seen = (asked, depths)

    # -- questions

    @property
    def _ingests(self) -> list[Ingest]:
        return [owner.ingest for owner in list(self._owners.owners.values())]

    @property
    def is_paused(self) -> bool:
        return any(owner.is_paused for owner in list(self._owners.owners.values()))

    def is_silent(self) -> bool:
        """True if connections are open and every received message is stored."""
        ingests = self._ingests
        is_connected = any(ingest.connections for ingest in ingests)  # before last_arrival
        return is_connected and all(
            time.monotonic() - ingest.last_arrival >= _FIRST_SILENCE and ingest.is_idle
            for ingest in ingests)

    def waiting(self) -> dict[str, dict[str, int | bool]]:
        found: dict[str, dict[str, int | bool]] = {}
        for nsqd, owner in list(self._owners.owners.items()):
            rows, size = owner.log.waiting
            found[nsqd] = {"messages": rows, "bytes": size, "is_estimate": False}
        return found

    def lag(self) -> dict[str, object]:
        owners = list(self._owners.owners.values())
        depths = self._seen[1]
        return {
            "depth": {address: one.depth for address, one in depths.known.items()},
            "depth_unknown": list(depths.unknown),
            "in_flight": sum(owner.ingest.in_flight for owner in owners),
            "connections": sum(owner.ingest.connections for owner in owners),
            "disk_full": any(owner.log.full_error is not None for owner in owners),
            "redelivered": sum(owner.log.redelivered for owner in owners),
            "duplicates_dropped": sum(owner.log.copies_dropped for owner in owners),
            "drained": self._drain is not None and self._end.is_set(),
        }

    # -- the end of a drain

    def drain_is_over(self) -> bool:
        """Stop the owners and return True if every message to drain is stored."""
        drain = self._drain
        assert drain is not None
        if self._end.is_set():
            return True
        self.check()
        owners = list(self._owners.owners.values())
        ingests = self._ingests
        is_connected = any(ingest.connections for ingest in ingests)  # before last_arrival
        last = max([self._started, *(ingest.last_arrival for ingest in ingests)])
        asked, depths = self._seen
        progress = Progress(
            stored=sum(owner.ingest.stored - owner.log.copies_dropped for owner in owners),
            last_arrival=last,
            is_connected=is_connected,
            is_idle=all(ingest.is_idle for ingest in ingests),
            is_paused=self.is_paused,
        )
        if asked:
            drain.note(asked, depths)
        has_enough = self._quota is not None and self._quota.left <= 0
        step = drain.decide(progress, time.monotonic())
        is_unknown = depths.is_topic_unknown and not is_connected
        if progress.is_idle and (has_enough or is_unknown):
            step = Step.END
        if step in (Step.WAIT, Step.FLUSH):
            return False
        if step is Step.FAIL:
            errors = [ingest.last_error for ingest in ingests if ingest.last_error is not None]
            raise self._failure(drain.stuck(), errors[-1] if errors else None)
        self._log_end(depths, is_unknown, has_enough or drain.has_reached_target(progress))
        self.stop()
        self._look()  # the depth for the last progress, now that nsqd has read every FIN
        self.check()
        return True

    def _failure(self, stuck: list[str], cause: NSQError | None) -> NSQError:
        options = self._options
        error = NSQError(
            f"{options.topic}/{options.channel}: a drain could not see that the channel is empty"
            f" for {options.config.drain_patience:g} s (drain_patience): {'; '.join(stuck)}"
            + (f"; the last failure: {cause}" if cause else ""))
        error.__cause__ = cause
        return error

    def _log_end(self, depths: ChannelDepths, is_unknown: bool, has_enough: bool) -> None:
        options = self._options
        if is_unknown:
            logger.warning("nsqlookupd lists no nsqd with the topic %s: nothing to read",
                           options.topic)
        elif depths.unknown and not has_enough:
            logger.warning(
                "%s/%s: the depth is unknown, so the read ends after %g s without a message"
                " (idleMs): %s", options.topic, options.channel, options.idle_ms,
                "; ".join(f"{address}: {why}" for address, why in depths.unknown.items()))
        elif depths.paused and not has_enough:
            logger.warning(
                "%s/%s: the channel or the topic is paused. Left for the next run: %s",
                options.topic, options.channel, counted(depths.paused, "message"))

    def check_space(self, waiting_since: float = 0.0) -> None:
        """Raise the storage's error if its disk has been full for 10 s."""
        errors = [error for owner in list(self._owners.owners.values())
                  if (error := owner.log.full_error) is not None]
        now = time.monotonic()
        if not errors:
            self._full_since = 0.0
            return
        self._full_since = self._full_since or now
        if now - max(self._full_since, waiting_since) >= _SPACE_PATIENCE:
            raise errors[0]


class Progress(NamedTuple):
    stored: int  #: messages stored since the start, without copies
    last_arrival: float  #: when the last message arrived, or the last connection opened
    is_connected: bool  #: True if at least one nsqd is connected
    is_idle: bool  #: True if every received message is stored
    is_paused: bool = False  #: True if an owner has stopped the flow


class ReceiverDrain:
    """Decides when a drain ends, with ``DrainDecision``. Pure.

    It also ends a drain when ``target`` messages are stored, the number that nsqd had at the start
    (None: unknown). Otherwise it would not end while somebody publishes.
    """

    def __init__(self, target: int | None, rules: DrainRules) -> None:
        self._target = target
        self._decision = DrainDecision(rules, _LONGEST_LOOK)

    def note(self, asked: float, depths: ChannelDepths) -> None:
        self._decision.on_answer(asked, depths)

    def decide(self, progress: Progress, now: float) -> Step:
        """Return the next step of the drain, never ``FLUSH``."""
        # The time of a stopped flow counts neither as silence nor as waiting.
        last_arrival = now if progress.is_paused else progress.last_arrival
        self._decision.look(now, {"": (last_arrival, True)})
        if not progress.is_idle:
            return Step.WAIT
        if self.has_reached_target(progress):
            return Step.END
        return self._decision.decide(progress.is_connected)

    def stuck(self) -> list[str]:
        return self._decision.stuck()

    def has_reached_target(self, progress: Progress) -> bool:
        return self._target is not None and progress.stored >= self._target
