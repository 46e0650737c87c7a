"""What a partitioned nsqd does for each command of one client. No socket, no thread."""

from __future__ import annotations

import time
from typing import Any

from nsqclient.devserver.dialogue import Dialogue
from nsqclient.devserver.faults import Faults
from nsqclient.devserver.partitioned.queue import LogMessage, PartitionChannel, PartitionConsumer
from nsqclient.devserver.partitioned.state import ClusterState, Refusal
from nsqclient.devserver.upgrades import Upgrades
from nsqclient.protocol.extended import MessageForm, Stored
from nsqclient.protocol.partition_events import (
    CheckExt,
    CreateTopic,
    OpenPartition,
    PartitionPub,
    PartitionSub,
)
from nsqclient.protocol.partition_server import (
    PartitionServerProtocol,
    check_header,
    has_trace,
)
from nsqclient.protocol.server_commands import Refused
from nsqclient.protocol.server_events import Event, Rdy
from nsqclient.protocol.wire import OK


class PartitionDialogue(Dialogue):
    """One client's commands. Every method runs under the engine's lock, save ``release``."""

    def __init__(
        self, core: PartitionServerProtocol, faults: Faults, number: int, upgrades: Upgrades,
        nsqd: int,
    ) -> None:
        super().__init__(core, faults, number, upgrades)
        self._partition_core = core
        self._nsqd = nsqd

    def leave(self, broker: Any) -> None:
        """The client is gone: what it has in flight goes to others. Idempotent."""
        channel, self.channel = self.channel, None
        if isinstance(channel, PartitionChannel) and isinstance(self.consumer, PartitionConsumer):
            channel.remove_consumer(self.consumer, time.monotonic())

    def _carry_out(self, event: Event, broker: Any, now: float) -> None:
        state: ClusterState = broker
        try:
            if isinstance(event, OpenPartition):
                state.find(self._nsqd, event.topic, event.partition)
            elif isinstance(event, CheckExt):
                self._check_ext(event, state)
            elif isinstance(event, PartitionPub):
                self._publish(event, state, now)
            elif isinstance(event, PartitionSub):
                self._subscribe_to(event, state, now)
            elif isinstance(event, CreateTopic):
                raise Refusal("E_CREATE_TOPIC_FAILED", "topic is created through nsqlookupd")
            elif isinstance(event, Rdy) and self.channel is None:
                return
            else:
                super()._carry_out(event, broker, now)
        except Refusal as refusal:
            self._answer(event, now, refusal.code, refusal.text.encode())
        except Refused as refused:
            text = refused.text if isinstance(refused.text, bytes) else refused.text.encode()
            self._answer(event, now, refused.code, text)

    def _check_ext(self, event: CheckExt, state: ClusterState) -> None:
        topic, _ = state.find(self._nsqd, event.topic, event.partition)
        if not topic.meta.extended:
            self._partition_core.desynchronise()
            raise Refusal("E_EXT_NOT_SUPPORT", f"ext content not supported in topic {topic.name}")

    def _publish(self, event: PartitionPub, state: ClusterState, now: float) -> None:
        topic, _ = state.find(self._nsqd, event.topic, event.partition)
        messages = event.messages
        if event.command == "PUB_EXT" and not topic.meta.extended:
            raise Refusal("E_EXT_NOT_SUPPORT", f"ext content not supported in topic {topic.name}")
        if event.command == "PUB_EXT" and not messages[0].header:
            raise Refused("E_INVALID_JSON_HEADER", "empty json header")
        messages = [
            new._replace(trace_id=check_header(new.header)) if new.header else new
            for new in messages
        ]
        stored = state.publish(
            self._nsqd, event.topic, event.partition, messages, time.time_ns(), now
        )
        count = self.pub_counts.get(event.topic, 0)
        self.pub_counts[event.topic] = count + len(messages)
        self._answer(event, now, None, _answer_to(event, stored))

    def _subscribe_to(self, event: PartitionSub, state: ClusterState, now: float) -> None:
        core = self._partition_core
        settings = core.settings if self.pump_settings is None else self.pump_settings
        ordered = event.command == "SUB_ORDERED"
        form = MessageForm(core.extend_support, event.command != "SUB")
        consumer = PartitionConsumer(
            self.number, settings.msg_timeout / 1000, settings.sample_rate, form
        )
        self.channel = state.subscribe(
            self._nsqd, event.topic, event.partition, event.channel, consumer, ordered,
            core.extend_support,
        )
        self.consumer = consumer
        self._answer(event, now, None, OK)


def _answer_to(event: PartitionPub, stored: list[LogMessage]) -> bytes:
    """OK, or the 30 bytes: of several messages the first one's place and the sum of sizes."""
    first = stored[0]
    if event.command == "MPUB_TRACE":
        size = sum(message.size for message in stored)
        return Stored(first.ids.internal_id, 0, first.offset, size).pack()
    traced = event.command == "PUB_TRACE" or (
        event.command == "PUB_EXT" and has_trace(event.messages[0].header)
    )
    return Stored(*first.ids, first.offset, first.size).pack() if traced else OK
