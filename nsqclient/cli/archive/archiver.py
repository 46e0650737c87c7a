"""``Archiver``: the handler that writes the messages of a Consumer into an Archive.

A message is finished only after fsync. Everything here that touches files runs on the
consumer's one worker thread: messages, and the tasks of timers and signals.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from nsqclient import AlreadyRespondedError, BatchHandler, Message, NSQConnectionError
from nsqclient.cli.archive.archive import Archive
from nsqclient.consumer.batch import BatchDelegate
from nsqclient.display import counted
from nsqclient.runtime.log_lines import PrefixedLogger

#: Seconds that a record waits for others before it is written (not synced): in the file of a
#: slow topic it is seen soon.
_WRITE_DELAY = 0.1
#: Messages are synced before this part of their timeout is over, however long --sync-interval is.
_PART_OF_TIMEOUT = 0.5


class Archiver(BatchHandler):
    """Collects messages, writes and syncs them together, then finishes them.

    It syncs when ``size`` messages wait, when the consumer is starved, each ``sync_interval``,
    when messages would time out, and when a file is closed.

    When a write fails, what was not synced is rolled back and all waiting messages are requeued;
    the consumer backs off and tries with one message at a time.

    Args:
        archive: where to write.
        size: messages that wait at most.
        sync_interval: seconds.
        log: for failures.
        now: seconds since the epoch.

    Life: the Consumer binds it, and calls ``flush`` when it stops: that closes the files.
    """

    def __init__(
        self, archive: Archive, size: int, sync_interval: float, log: PrefixedLogger,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(lambda batch: None, size, sync_interval)
        self._archive = archive
        self._most = size
        self._interval = sync_interval
        self._log = log
        self._now = now
        self._owner: BatchDelegate  # from bind() on
        # Of the worker thread alone, all below.
        self._pending: list[Message] = []
        self._written = 0  # how many of them were handed to the archive
        self._write_is_due = False
        self._sync_is_due = False
        self._is_closed = False
        #: Whether files could not be finished at the end.
        self.has_failed: bool = False

    def bind(self, consumer: BatchDelegate) -> None:
        """Called by the Consumer."""
        self._owner = consumer
        consumer.run_later(self._interval, self._on_tick)

    def __call__(self, message: Message) -> None:
        """Take one message. On the worker thread."""
        message.enable_async()
        pending = self._pending
        pending.append(message)
        owner = self._owner
        if len(pending) >= self._most or owner.is_starved():
            self._sync()
        elif not self._write_is_due:
            self._write_is_due = True
            owner.run_later(_WRITE_DELAY, lambda: owner.run_on_worker(self._write_waiting))

    def reopen(self) -> None:
        """Sync and close the files; the next message opens one. From any thread, for SIGHUP."""
        self._owner.run_on_worker(self._reopen)

    def flush(self) -> None:
        """Sync, and close the files finally. On the worker thread, at the consumer's stop."""
        self._sync()
        self._is_closed = True
        try:
            self._archive.close()
        except OSError as exc:
            self.has_failed = True
            self._log.error("cannot finish %s: %s", ", ".join(self._archive.unfinished()), exc)

    def requeue_pending(self) -> None:
        """Requeue what was not synced, without backoff: the end of a stop that ran out of time."""
        self._requeue(backoff=False)

    def _on_tick(self) -> None:
        """On the timer thread."""
        self._owner.run_on_worker(self._tick)

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._owner.run_later(self._interval, self._on_tick)
        if self._try(self._write_pending) and self._try(lambda: self._archive.tick(self._now())):
            self._sync()

    def _reopen(self) -> None:
        self._sync()
        if self._try(self._archive.close):
            self._log.info("closed all files; the next message opens a new one")

    def _write_waiting(self) -> None:
        """Write what waits, and schedule a sync before the messages time out."""
        self._write_is_due = False
        if not self._is_closed and self._try(self._write_pending):
            self._watch_timeout()

    def _watch_timeout(self) -> None:
        """Sync before the oldest message times out, where no tick comes before that."""
        if not self._pending or self._sync_is_due:
            return
        first, owner = self._pending[0], self._owner
        left = first.time_left - (first.deadline - first.received) * (1 - _PART_OF_TIMEOUT)
        if left <= 0:
            self._sync()
        elif left < self._interval:
            self._sync_is_due = True
            owner.run_later(left, lambda: owner.run_on_worker(self._on_timeout_near))

    def _on_timeout_near(self) -> None:
        self._sync_is_due = False
        self._watch_timeout()

    def _write_pending(self) -> None:
        fresh = self._pending[self._written:] if self._written else self._pending
        if fresh:
            self._archive.write(fresh, self._now())
            self._written = len(self._pending)

    def _sync(self) -> None:
        """Write and sync what waits, then finish it."""
        if not self._pending:
            return
        if not (self._try(self._write_pending) and self._try(self._archive.sync)):
            return
        done, self._pending, self._written = self._pending, [], 0
        self._log.debug("synced %s to disk", counted(len(done), "record"))
        for message in done:
            try:
                message.finish()
            except (AlreadyRespondedError, NSQConnectionError) as exc:
                self._log.info("%s", exc)

    def _try(self, action: Callable[[], None]) -> bool:
        """Call an action on files; when it fails, requeue what waits."""
        try:
            action()
        except Exception as exc:
            # A full disk needs no traceback; any other error than an OSError is a bug and does.
            self._log.error(
                "cannot write: %s; requeued %s", exc, counted(len(self._pending), "message"),
                exc_info=not isinstance(exc, OSError),
            )
            self._archive.roll_back()
            self._requeue(backoff=True)
            return False
        return True

    def _requeue(self, backoff: bool) -> None:
        # Without delay: the backoff delays them, and when it ends the messages are there.
        back, self._pending, self._written = self._pending, [], 0
        for message in back:
            try:
                message.requeue(delay=0, backoff=backoff)
            except (AlreadyRespondedError, NSQConnectionError) as exc:
                self._log.info("%s", exc)
