"""Subscriptions to one partition, plain or ordered.

A start position is set through nsqd's HTTP API before the connection opens: SUB_ADVANCED with a
start position ignores its partition, and an ordered topic refuses the command. Source: "How we
redesign the NSQ smart client", "Ordered Message Consumption".
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from nsqclient.connection.connection import Connection
from nsqclient.connection.handshake import Subscribe
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.context import ConsumerContext
from nsqclient.consumer.in_flight import DeliveryCounts
from nsqclient.consumer.stats import ConnectionStats
from nsqclient.consumer.subscription import Subscription, SubscriptionOwner, body_of
from nsqclient.display import counted
from nsqclient.errors import (
    ConnectError, NSQHTTPError, NSQHTTPStatusError, NegotiationError, PartitionError,
    ReentrantCallError, ServerError, as_cause, server_error,
)
from nsqclient.hints import hint_on
from nsqclient.log_records import log_fields
from nsqclient.message import Message, Responder
from nsqclient.partitioned.leaders import PartitionTarget
from nsqclient.partitioned.options import PartitionOptions, TraceSwitch, log_trace
from nsqclient.protocol import commands
from nsqclient.protocol.partitioned import extensions
from nsqclient.protocol.events import ServerSettings
from nsqclient.protocol.partitioned.extensions import (
    LEADER_CODES, MessageExtension, MessageFormat, MessageIds, read_header,
)
from nsqclient.protocol.frames import RawMessage
from nsqclient.runtime.deadline import Deadline

#: Timeout in seconds of each request that sets the start of a channel.
_TIMEOUT = 3.0
#: nsqd's answer if a partition has no messages, so its channels are at its start.
_NO_MESSAGES = "commit log end of file"
_NO_EXTENSION = MessageExtension()


@dataclasses.dataclass(frozen=True)
class TopicSubscribe(Subscribe):
    is_listed: bool  #: an nsqlookupd lists the nsqd; False: only its address is known

    def command(self, address: str, settings: ServerSettings) -> bytes:
        if not (settings.is_stock or self.is_listed):
            raise PartitionError(
                f"{address}: nsqd {settings.version} is a partitioned one; by its address alone"
                " only a part of the messages would come: give lookupd_http_addresses instead of"
                " nsqd_tcp_addresses")
        return commands.sub(self.topic, self.channel)


@dataclasses.dataclass(frozen=True)
class PartitionSubscribe(Subscribe):
    partition: int
    ordered: bool = False
    extended: bool = False  #: the topic's messages have headers; nsqd refuses a wrong value
    with_offsets: bool = False
    identify: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def identify_fields(self) -> Mapping[str, Any]:
        return {"extend_support": True, **self.identify} if self.extended else self.identify

    def command(self, address: str, settings: ServerSettings) -> bytes:
        if settings.is_stock:
            raise NegotiationError(
                f"{address}: nsqlookupd says that it leads partition {self.partition} of"
                f" {self.topic}, and nsqd {settings.version} has no partitions")
        return extensions.sub(
            self.topic, self.channel, self.partition, ordered=self.ordered,
            with_offsets=self.with_offsets)

    def read(self, batch: list[RawMessage]) -> tuple[list[RawMessage], list[MessageExtension]]:
        """Separate headers and positions from the bodies. Raises RemoteProtocolError."""
        has_detail = self.ordered or self.with_offsets
        if not (has_detail or self.extended):
            return batch, [_NO_EXTENSION] * len(batch)
        form = MessageFormat(self.extended, has_detail)
        messages, found = [], []
        for timestamp, attempts, message_id, data in batch:
            body, extension = form.read(data)
            messages.append((timestamp, attempts, message_id, body))
            found.append(extension)
        return messages, found


@dataclasses.dataclass(frozen=True)
class PartitionStats(ConnectionStats):
    partition: int


class PartitionMessage(Message):
    __slots__ = ("partition", "internal_id", "trace_id", "offset", "size", "_extension", "__dict__")

    partition: int
    internal_id: int
    trace_id: int

    def __init__(
        self, raw: RawMessage, extension: MessageExtension, received: float, deadline: float,
        responder: Responder, partition: int,
    ) -> None:
        timestamp, attempts, message_id, body = raw
        super().__init__(body, message_id, attempts, timestamp, received, deadline, responder)
        self.partition = partition
        self.internal_id, self.trace_id = MessageIds.unpack(message_id)
        self.offset: int | None = extension.offset
        self.size: int | None = extension.size
        self._extension = extension

    @cached_property
    def headers(self) -> dict[str, Any]:
        return read_header(self._extension.header)

    @property
    def _header_size(self) -> int:  # type: ignore[override]  # the base class has a plain 0
        return len(self._extension.header)

    def __repr__(self) -> str:
        return (
            f"<Message {self.internal_id} of partition {self.partition} attempts={self.attempts}"
            f" {counted(len(self.body), 'byte')} from {self.nsqd_address}>"
        )


class PartitionSubscription(Subscription):
    """One connection to one partition.

    Args:
        begun: partitions whose start position was set. Shared by all subscriptions of a consumer.
    """

    def __init__(
        self, target: PartitionTarget, context: ConsumerContext, owner: SubscriptionOwner,
        unhandled: DeliveryCounts, options: PartitionOptions, tracing: TraceSwitch,
        begun: set[int],
    ) -> None:
        place = target.place
        super().__init__(place.address, context, owner, unhandled)
        assert place.partition is not None
        self.place = place
        self._partition = place.partition
        self.wanted: PartitionSubscribe = PartitionSubscribe(
            self.topic, self.channel, place.partition, target.ordered, target.extended,
            with_offsets=options.with_offsets or options.start_at is not None,
            identify=options.identify_fields(),
        )
        self._start = options.start_of(place.partition)
        self._http_address = target.http_address
        self._begun = begun
        self._tracing = tracing
        self.is_watched: bool = False  # the watchdog reads only the counts of a stock nsqd
        self._opened_at = 0.0  # on time.monotonic()

    def on_messages(self, conn: Connection, batch: list[RawMessage]) -> None:
        batch, extensions = self.wanted.read(batch)
        now = time.monotonic()
        deadline = now + self.msg_timeout
        messages: list[Message] = [
            PartitionMessage(raw, extension, now, deadline, self, self._partition)
            for raw, extension in zip(batch, extensions)
        ]
        if self._tracing.is_on(self.topic):
            self._trace(conn, messages)
        self.in_flight.put(messages)
        state = self.rdy_state
        if state is not None:
            state.last_message = now
        size = sum(map(len, map(body_of, batch))) + sum([len(each.header) for each in extensions])
        self._owner.on_messages(self, messages, size)

    def open(self, deadline: Deadline) -> None:
        """Move the channel to its start position if one is set, then connect and subscribe.

        Raises:
            ServerError: this nsqd does not lead the partition.
            ConnectError: the start position could not be set, with the reason.
        """
        if self._start is not None and self._partition not in self._begun:
            try:
                self._move_to_start()
            except NSQHTTPError as exc:
                if isinstance(exc, NSQHTTPStatusError) and exc.message in LEADER_CODES:
                    raise server_error(exc.message.encode()) from as_cause(exc)
                is_refused = isinstance(exc, NSQHTTPStatusError) and exc.status == 403
                raise ConnectError(
                    self.address, f"partition {self._partition} could not be set to {self._start}"
                    f" through its HTTP API {self._http_address}: {exc.reason}",
                    hint_on("HTTP 403", exc.reason) if is_refused else exc.hint
                ) from as_cause(exc)
            self._begun.add(self._partition)
        super().open(deadline)
        self._opened_at = time.monotonic()

    def stats(self, rdy: int) -> PartitionStats:
        found = super().stats(rdy)
        values = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        return PartitionStats(**values, partition=self._partition)

    def _move_to_start(self) -> None:
        """Set the start position, unless the channel has consumers. Blocks for three requests."""
        # Imported here because requests takes longer to import than the whole library.
        from nsqclient.partitioned.http import PartitionedNsqdHTTP

        fields = log_fields(nsqd=self.address)
        with PartitionedNsqdHTTP(
                self._http_address, self._config, timeout=_TIMEOUT,
                connect_timeout=self._config.dial_timeout) as client:
            try:
                consumers = client.start_channel(
                    self.topic, self._partition, self.channel, str(self._start))
            except NSQHTTPStatusError as exc:
                if exc.message != _NO_MESSAGES:
                    raise
                self._log.info("%s: no messages yet: the channel starts with the first one",
                               self.place, extra=fields)
                return
        if consumers:
            self._log.warning(
                "%s: the start position %s is not applied: the channel has %s, and nsqd takes"
                " the position of the first one", self.place, self._start,
                counted(consumers, "consumer"), extra=fields)
        else:
            self._log.info("%s: the channel starts at %s", self.place, self._start, extra=fields)

    def _log_late_answer(self, error: ServerError, is_first: bool) -> None:
        if time.monotonic() - self._opened_at >= self.msg_timeout:
            super()._log_late_answer(error, is_first)
            return
        self._log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s: %s (the leader has just changed, and the former one may or may not have stored the"
            " response: the message is finished or delivered again; no action is needed)",
            self.address, error, extra=log_fields(nsqd=self.address),
        )

    def _trace(self, conn: Connection, messages: list[Message]) -> None:
        for message in messages:
            assert isinstance(message, PartitionMessage)
            log_trace(
                "received", topic=self.topic, channel=self.channel,
                partition=message.partition, internal_id=message.internal_id,
                trace_id=message.trace_id, offset=message.offset, size=message.size,
                timestamp=message.timestamp, attempts=message.attempts,
                consumer=conn.local_host, nsqd=self.address)


class OrderedSubscription(PartitionSubscription):
    """A subscription that delivers the messages of its partition one by one and in order.

    A failed message stays in flight, and is touched, until its delay is over; then it is requeued
    with REQ 0, because nsqd ignores longer delays. Meanwhile nsqd sends no other message of the
    partition.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Internal id and offset of the last finished message; both increase from message to
        #: message. None: any message may come next. Not locked, because only one message is in
        #: flight.
        self.last_finished: tuple[int, int] | None = None

    @property
    def max_rdy(self) -> int:
        return 1  # nsqd sends one message at a time, even with a higher RDY

    def finish(self, message: Message) -> None:
        self.note_finished(message)
        super().finish(message)
        self.conn.reader.wake()

    def note_finished(self, message: Message) -> None:
        """Record the position of a finished message. Earlier messages are now out of order."""
        if self.in_flight.holds(message) and not self.is_behind(message):
            assert message.internal_id is not None and message.offset is not None
            self.last_finished = message.internal_id, message.offset

    def is_behind(self, message: Message) -> bool:
        """True if the message is out of order, before the last finished one."""
        assert message.internal_id is not None and message.offset is not None
        last = self.last_finished
        return last is not None and (message.internal_id < last[0] or message.offset < last[1])

    def requeue(self, message: Message, delay: float | None, backoff: bool) -> None:
        """Keep and touch the message for the delay, then give it back with REQ 0.

        Ignores ``backoff``, which would stop the other partitions too.
        """
        until = time.monotonic() + (self._retry_delay(message) if delay is None else delay)
        self.in_flight.mark_responded(message)
        try:
            self._owner.on_result(Outcome.NEUTRAL)
            if self.in_flight.holds(message):
                self._wait(message, until)
            elif self.is_lost:
                self._count_lost(1)
        except ReentrantCallError:  # a finalizer or signal handler, in the middle of another call
            self._context.run_in_background(lambda: self._go_on_waiting(message, until))

    def _retry_delay(self, message: Message) -> float:
        config = self._config
        doubled: float = 2.0 ** min(max(message.attempts - 1, 0), 40)
        return min(config.ordered_retry_delay * doubled, config.ordered_max_retry_delay)

    def _wait(self, message: Message, until: float) -> None:
        """Give the message back if its delay is over, else schedule the next step. Never blocks."""
        now = time.monotonic()
        if now >= until:
            self._give_back(message)
            return
        step = min(until - now, self.msg_timeout / 2)
        self._context.timer.schedule(step, lambda: self._go_on_waiting(message, until))

    def _go_on_waiting(self, message: Message, until: float) -> None:
        # On the timer thread, so it must not block.
        if not self.in_flight.holds(message):
            return  # nsqd has delivered it again, or the connection is lost
        if time.monotonic() < until:
            if message.deadline < message.received + self._max_msg_timeout:
                self._extend(message)
                self._send(lambda core: core.send_touch(message.raw_id), 1, waits=False)
        self._wait(message, until)

    def _give_back(self, message: Message) -> None:
        if self.in_flight.take([message]):
            self.in_flight.count_more("requeued")
            self._send(lambda core: core.send_req(message.raw_id, 0), 1, waits=False)
