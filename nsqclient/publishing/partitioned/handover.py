"""``HandOver``: brings to partitions what was queued before anybody knew that there are some.

An asynchronous publish never waits for a connection. So the first ones stand in the queue of a
stock cluster, and go another way when the first nsqd turns out to be a partitioned one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from nsqclient.connection import Connection
from nsqclient.errors import NSQError
from nsqclient.protocol.extended import Stored
from nsqclient.publishing.items import Item
from nsqclient.publishing.link import Link
from nsqclient.publishing.partitioned.front import Extras, PartitionedFront
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.futures import PlainFuture


class HandOverGate(Protocol):
    """What a HandOver needs of its gate."""

    is_stock: bool

    def front_behind(self, conn: Connection) -> PartitionedFront | None:
        """The way to the partitions of this nsqd's cluster; None where it has none."""

    def publish_later(
        self, front: PartitionedFront, topic: str, body: bytes, extras: Extras, deadline: Deadline
    ) -> Future[Stored | None]:
        """Queue one message for a partition."""


class HandOver:
    """Threads: ``divert`` is called by the publisher's alone, ``abandon`` in a forked child."""

    def __init__(self, gate: HandOverGate) -> None:
        self._gate = gate
        self._items: set[Item] = set()  # handed over; changed by single calls alone

    def divert(
        self, link: Link, items: Sequence[Item], done: Callable[[Sequence[Item]], None],
        note: Callable[[BaseException], None],
    ) -> bool:
        """Take the items where the nsqd is a partitioned one; False: they are sent there.

        ``done`` is called for each when its outcome is known, ``note`` as by ``Item.fail``.
        """
        conn = link.conn
        # Without a connection nothing will be sent there, and it is tried again.
        if self._gate.is_stock or conn is None:
            return False
        front = self._gate.front_behind(conn)
        if front is None:
            return False
        self._items.update(items)
        for item in items:
            self._hand_over(front, item, partial(self._finish, item, done, note))
        return True

    def _hand_over(
        self, front: PartitionedFront, item: Item,
        finish: Callable[[Future[Stored | None]], None],
    ) -> None:
        deadline = Deadline(max(0.0, item.until - time.monotonic()))
        try:
            if item.delay_ms is not None:
                front.refuse_deferral()
            outcome = self._gate.publish_later(front, item.topic, item.body, Extras(), deadline)
        except NSQError as exc:
            outcome = PlainFuture()
            outcome.set_exception(exc)
        outcome.add_done_callback(finish)

    def _finish(
        self, item: Item, done: Callable[[Sequence[Item]], None],
        note: Callable[[BaseException], None], outcome: Future[Stored | None],
    ) -> None:
        self._items.discard(item)
        done([item])
        error = outcome.exception()
        if error is None:
            item.set_result(outcome.result())
        else:
            item.fail(error, note)

    def abandon(self) -> None:
        """In a forked child: fail the futures that it inherited."""
        for item in self._items:
            item.abandon()
