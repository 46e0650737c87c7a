"""``Batch``: asynchronous publishes that travel as one command, and what its verdict means."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Optional

from nsqclient.errors import (
    NSQError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    ServerError,
)
from nsqclient.protocol import commands
from nsqclient.publishing.items import Item
from nsqclient.publishing.link import Link, patience
from nsqclient.publishing.verdicts import Verdict, is_about_one_message, rejection

#: Messages whose deadlines are further apart than this, in seconds, do not share an MPUB.
_DEADLINE_SPREAD = 0.5
#: Most messages and bytes of one MPUB of ours; well under nsqd's limits, and quick to store.
BATCH_MESSAGES = 2000
BATCH_BYTES = 1024 * 1024


class Batch:
    """Items that travel as one command; the token of that command."""

    __slots__ = ("items", "until", "link", "look_at", "_progress", "_on_settled")

    def __init__(
        self,
        items: list[Item],
        on_settled: Callable[[Batch, Verdict, Optional[NSQError]], None],
    ) -> None:
        self.items = items
        self.until = max(item.until for item in items)
        self.link: Link | None = None  # the nsqd that it was sent to
        self.look_at = self.until  # when to see whether that one is silent; on time.monotonic()
        self._progress = (0, 0)
        self._on_settled = on_settled

    def is_given_to(self, link: Link, now: float) -> None:
        """It is about to be sent there."""
        self.link = link
        self._watch(link, now)

    def _watch(self, link: Link, now: float) -> None:
        self._progress = link.progress()
        self.look_at = min(self.until, now + patience(self.items[0].seconds))

    def met_silence(self, now: float) -> bool:
        """Tell, once it is time to look, whether the nsqd has done nothing since the last look."""
        link = self.link
        if link is None or now < self.look_at:
            return False
        before = self._progress
        self._watch(link, now)
        return before == self._progress

    def command(self) -> bytes:
        """Build the command that brings the items to nsqd."""
        items = self.items
        first = items[0]
        if len(items) > 1:
            return commands.mpub_unchecked(first.topic, [item.body for item in items])
        if first.delay_ms is not None:
            return commands.dpub_unchecked(first.topic, first.delay_ms, first.body)
        return commands.pub_unchecked(first.topic, first.body)

    def settle(self, verdict: Verdict, error: NSQError | None) -> None:
        """The verdict is known. On a reader thread."""
        self._on_settled(self, verdict, error)


def cut(queue: deque[Item], items: list[Item], max_bytes: int) -> None:
    """Move the first item of the queue, and those behind it that may share its MPUB, to ``items``.

    An item is in one of the two at any time: a fork may come in between.
    """
    first = queue[0]
    size = 8 + len(first.body)
    items.append(first)
    queue.popleft()
    while queue and not first.alone and len(items) < BATCH_MESSAGES:
        item = queue[0]
        size += 4 + len(item.body)
        if item.topic != first.topic or item.alone or size > max_bytes:
            break
        if abs(item.until - first.until) > _DEADLINE_SPREAD:
            break
        items.append(item)
        queue.popleft()


def failure_of(
    batch: Batch, verdict: Verdict, error: NSQError | None, retry_unknown: bool
) -> PublishError | None:
    """Say what a batch that was not stored fails with; None when it is to be sent again.

    Marks its items with what the next try must know.
    """
    items = batch.items
    if verdict is Verdict.NOT_READ:
        return None
    if verdict is Verdict.UNKNOWN:
        for item in items:
            item.maybe_stored = True
        return None if retry_unknown else PublishUnknown(f"no verdict: {error}")
    if not isinstance(error, ServerError):
        return PublishUnknown(f"no verdict: {error}")
    refused = rejection("nsqd" if batch.link is None else batch.link.address, error)
    if len(items) > 1 and is_about_one_message(error):
        # One of them is guilty: each is tried alone, and only that one will fail.
        for item in items:
            item.alone = True
        return None
    return None if refused.retryable else refused


def too_late(item: Item) -> PublishRejected | PublishUnknown:
    """Why an item fails whose deadline has passed."""
    if item.maybe_stored:
        return PublishUnknown("no verdict before the deadline")
    return PublishNotSent("the deadline came before it could be sent")


def closed(item: Item) -> PublishRejected | PublishUnknown:
    """Why an item fails that ``close()`` found unsent."""
    if item.maybe_stored:
        return PublishUnknown("the producer was closed before the verdict")
    return PublishNotSent("the producer was closed before it was sent")
