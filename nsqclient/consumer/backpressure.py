"""``Backpressure``: stops the flow while the messages that wait for a worker take too much memory.

``QueueLimit`` decides, from values: ``now`` is an argument; ``Backpressure`` performs it for one
consumer. What counts as waiting:

- every message in the queue, a second delivery of the same id, and an expired one, included;
- messages of a partition that wait for the one before them;
- when handlers have left more messages unanswered than ``max_in_flight`` (``enable_async()``, or
  after timeouts), those too.

Messages that are being handled do not count: ``max_in_flight`` limits them. Nothing is counted
where a message leaves the queue, because that happens for every message. What arrives is added up
instead, and the queue is measured only when the sum could be over the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter

from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.flow_control import FlowControl
from nsqclient.consumer.processor import MessageProcessor, by_subscription
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import RemoteProtocolError
from nsqclient.message import MESSAGE_OVERHEAD, Message
from nsqclient.runtime.lock import Lock
from nsqclient.runtime.log_lines import SwitchLimit

#: Seconds between two looks while the flow is held. A look at a long queue takes tens of
#: milliseconds; the next one comes no sooner than so many times that.
_INTERVAL, _REST = 0.05, 10
#: Bytes that may arrive after RDY 0 was sent, and are still queued: what nsqd had sent before it
#: read RDY 0. The buffers of both sockets hold it: 10 MiB with Linux's defaults.
UNDER_WAY = 32 * 1024 * 1024
#: The same for each connection, where there are many.
UNDER_WAY_EACH = 16 * 1024 * 1024
#: The queue is not measured again before this part of the limit was added to it.
_STEP = 1 / 16
#: With a limit of so many bytes, memory is given back to the system when a hold ends: at least
#: half of the limit was freed.
_RELEASED_FROM = 64 * 1024 * 1024

_body_of = attrgetter("body")
_header_size_of = attrgetter("_header_size")


class QueueLimit:
    """The bound on the bytes that wait in one consumer, and whether the flow is held by it.

    Not thread-safe: the caller holds a lock. Sizes are bodies plus MESSAGE_OVERHEAD each.

    Args:
        limit: bytes that may wait (``max_queued_bytes``).
        settle_time: seconds after which RDY 0 is surely in force.
    """

    def __init__(self, limit: int, settle_time: float) -> None:
        self.limit = limit
        self.settle_time = settle_time
        #: When the hold began; None while messages may flow.
        self.held_since: float | None = None
        self._measured = 0  # bytes that waited when the queue was measured last
        self._added = 0  # bytes that have arrived since; some of them may have left already
        # Of this hold, by connection: which had their last message queued, and what arrived
        # after the settle time, messages and bytes.
        self._full: set[object] = set()
        self._late: dict[object, tuple[int, int]] = {}

    @property
    def is_held(self) -> bool:
        """Whether RDY is to be 0."""
        return self.held_since is not None

    def add(self, size: int) -> bool:
        """Note what was put into the queue; True when the queue is to be measured now."""
        self._added += size
        return (
            self.held_since is None
            and self._measured + self._added > self.limit
            and self._added >= self.limit * _STEP
        )

    def measured(self, count: int, size: int, now: float) -> None:
        """Note that ``count`` messages of ``size`` bytes wait, and begin or end the hold.

        A single message is never too much, whatever its size: else it could not be received.
        """
        self._measured, self._added = size, 0
        if count <= 1 or size <= self.limit // 2:
            self.held_since = None
        elif size > self.limit and self.held_since is None:
            self.held_since = now
            self._full, self._late = set(), {}

    def accepts(self, connection: object, connections: int) -> bool:
        """Return whether what arrives now is queued; else it goes back to nsqd at once.

        On each of the ``connections`` one message more may be under way, whatever its size.
        """
        most = self.limit + max(UNDER_WAY, connections * UNDER_WAY_EACH)
        if self.held_since is None or self._measured + self._added <= most:
            return True
        is_first = connection not in self._full
        self._full.add(connection)
        return is_first

    def is_flood(
        self, connection: object, count: int, size: int, highest_rdy: int, now: float
    ) -> bool:
        """Note what arrived on a connection; True when no nsqd that obeys RDY 0 can have sent it.

        Only what arrives after the settle time counts. A slow network or a busy process delays
        messages for longer, but no more than twice ``highest_rdy`` of them: so many may be in
        flight when RDY 0 is sent, and FINs that were written before it let as many follow. And
        no more bytes than the sockets hold.
        """
        if self.held_since is None or now < self.held_since + self.settle_time:
            return False
        messages, before = self._late.get(connection, (0, 0))
        self._late[connection] = messages + count, before + size
        return messages + count > 2 * highest_rdy or before > UNDER_WAY


class Backpressure:
    """Takes what arrives. Holds RDY at 0 while more than ``max_queued_bytes`` wait, until half of
    it is left.

    Threads: any. Its locks are the innermost; nothing is called while one is held.
    """

    def __init__(
        self,
        context: ConsumerContext,
        flow: FlowControl,
        processor: MessageProcessor,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._processor = processor
        self._timer = context.timer
        self._run_in_background = context.run_in_background
        self._log = context.log
        self._clock = clock
        self._lock = Lock()
        # Changed under _lock, as all below.
        self._limit = QueueLimit(context.config.max_queued_bytes, flow.settle_time)
        self._is_recheck_due = False
        self._log_limit = SwitchLimit()
        #: RDY is 0 because of ``max_queued_bytes``.
        self.is_held: bool = False

    def queued_bytes(self) -> int:
        """Measure what waits for a worker."""
        return _size(self._processor.waiting())

    # -- from the readers

    def enqueue(self, sub: Subscription, messages: list[Message], size: int) -> None:
        """Queue what a connection delivered, bodies of ``size`` bytes. Called by its reader.

        Raises:
            RemoteProtocolError: they should not have been sent; the connection must end.
        """
        processor = self._processor
        if processor.requeues_incoming:
            sub.requeue_unstarted(messages)
            return
        if self.is_held and not self._accepts(sub, len(messages), size):
            sub.requeue_excess(messages)
            return
        if processor.queue(messages):
            processor.drop_expired()
        if self._processor.requeues_incoming:
            processor.requeue_queued()  # a stop has begun while they were put
        flow = self._flow
        flow.times_handlers = True
        if flow.counts_arrivals:
            flow.on_arrival(len(messages))
        with self._lock:
            is_due = self._limit.add(size + len(messages) * MESSAGE_OVERHEAD)
        if is_due:
            self._measure()

    def _accepts(self, sub: Subscription, count: int, size: int) -> bool:
        """Return whether messages that arrived may be queued; else they must go back to nsqd.

        Raises:
            RemoteProtocolError: the connection must end, because its nsqd ignores RDY 0.
        """
        limit = self._limit
        rdy = sub.highest_rdy
        with self._lock:
            is_flood = limit.is_flood(
                sub, count, size + count * MESSAGE_OVERHEAD, rdy, self._clock()
            )
            accepted = limit.accepts(sub, len(self._flow.subscriptions))
        if is_flood:
            raise RemoteProtocolError(
                f"{sub.address} sends without regard to RDY: more messages came later than"
                f" {limit.settle_time:g} s after RDY 0 than RDY {rdy} explains"
            )
        return accepted

    # -- the decision and what follows from it

    def _measure(self) -> None:
        began = self._clock()
        count, size = self._count()
        limit = self._limit
        if (limit.is_held or size > limit.limit) and self._drop_expired():
            count, size = self._count()
        now = self._clock()
        with self._lock:
            before = limit.is_held
            limit.measured(count, size, now)
            held = self.is_held = limit.is_held
            is_news = held != before and self._log_limit.is_news(held, now)
            look = held and not self._is_recheck_due
            self._is_recheck_due = self._is_recheck_due or look
        if held != before:
            self._apply()
        if before and not held and limit.limit >= _RELEASED_FROM:
            self._run_in_background(release_memory)
        if is_news and held:
            self._log.warning(
                "RDY 0 until workers catch up: %.1f MiB wait in the queue, max_queued_bytes is %.1f"
                " MiB; add workers, make the handler faster, or lower max_in_flight",
                size / 2**20, limit.limit / 2**20)
        elif is_news:
            self._log.info("half of max_queued_bytes is free again, RDY restored")
        if look:
            self._timer.schedule(max(_INTERVAL, _REST * (now - began)), self._recheck)

    def _apply(self) -> None:
        # Of several threads the last one is right, whichever that is.
        while True:
            held = self.is_held
            self._flow.set_held(held)
            if held == self.is_held:
                return

    def _recheck(self) -> None:
        # On the timer thread, while the flow is held.
        with self._lock:
            self._is_recheck_due = False
        self._measure()

    def _count(self) -> tuple[int, int]:
        """How many messages count as waiting, and their bytes."""
        waiting = self._processor.waiting()
        count, size = len(waiting), _size(waiting)
        subs = self._flow.subscriptions
        most = max(self._flow.max_in_flight, 1)
        if sum(map(len, subs)) > most:
            queued = set(map(id, waiting))
            others = [m for sub in subs for m in sub.in_flight.messages() if id(m) not in queued]
            if len(others) > most:
                count, size = count + len(others), size + _size(others)
        return count, size

    def _drop_expired(self) -> bool:
        """Drop what nsqd has taken back; return whether there was any."""
        now = self._clock()

        def is_expired(message: Message) -> bool:
            if message._responded:
                return False  # a task for a worker, or it was requeued
            sub = message._responder
            assert isinstance(sub, Subscription)
            return message.deadline <= now or sub.is_lost

        if not any(map(is_expired, self._processor.waiting())):
            return False
        for sub, messages in by_subscription(self._processor.remove_waiting(is_expired)).items():
            sub.drop_all_expired(messages)
        return True


def _size(messages: list[Message]) -> int:
    """Bytes that messages take. In C, because a queue may have hundreds of thousands."""
    bodies = sum(map(len, map(_body_of, messages)))
    headers: int = sum(map(_header_size_of, messages))
    return bodies + headers + len(messages) * MESSAGE_OVERHEAD


def release_memory() -> None:
    """Give back what was freed, where the C library has a function for that (glibc).

    glibc has a pool of memory for each of several threads and keeps much of what they free. Each
    connection has a thread of its own: when a long queue is freed and the next one grows through
    another connection, both would count. With it a flood of messages on connections that were
    cut one after the other took 330 MiB, without it 650 MiB.

    Blocks: tens of milliseconds; other threads go on.
    """
    import ctypes  # here: it takes milliseconds to import, and is seldom needed

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    trim(0)
