"""``LookGuard``: lets consumers that only look subscribe only if this changes nothing.

SUB creates a missing topic or channel, and the first channel of a topic takes the messages that
wait in the topic. So the nsqd is asked for its topics and channels before each SUB.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, Any

from nsqclient.config import Config
from nsqclient.consumer.drain_decision import DrainRules
from nsqclient.consumer.draining import TICK, Drain
from nsqclient.consumer.core import iterate
from nsqclient.errors import ConnectError, NSQError
from nsqclient.message import Message
from nsqclient.partitioned.consumer import Consumer
from nsqclient.protocol.events import Endpoint
from nsqclient.protocol.names import is_ephemeral

if TYPE_CHECKING:
    from nsqclient.partitioned.channel_depth import DepthQuery
    from nsqclient.http.models import TopicStats

#: Seconds without any connection after which a refusal is the end.
_REFUSED = 0.5
#: Seconds after which an nsqd is asked again at most, until it can be subscribed to.
LONGEST_WAIT = 2.0


class Obstacle(enum.Enum):
    NO_TOPIC = enum.auto()  #: the topic does not exist there; it may be created later
    NO_CHANNEL = enum.auto()  #: a channel is missing
    NOT_KNOWN = enum.auto()  #: the nsqd cannot be asked


class LookRefusedError(ConnectError):
    obstacle = Obstacle.NOT_KNOWN


def refusal(
    topic: str, channel: str, channels: Collection[str], *, may_create: bool = False,
    has_partitions: bool = False,
) -> str:
    """Return the change that SUB would make, and what to do; empty: no change.

    Args:
        channels: the channels of the topic on the nsqd.
        may_create: the user wants to create the channel.
        has_partitions: a new channel of a partitioned topic begins at its end.
    """
    if channel in channels or may_create:
        return ""
    if not is_ephemeral(channel):
        return (f"topic {topic} has no channel {channel} there, and a subscription would create"
                " it: create the channel first")
    # An ephemeral channel may be gone in the next moment.
    if all(map(is_ephemeral, channels)) and not has_partitions:
        return (f"topic {topic} has no channel there, and the first one would take the messages"
                " that wait: create a channel first")
    return ""


class LookGuard:
    """Checks the nsqds of one consumer before each subscription. Threads: any.

    Args:
        ask: returns the topic on the nsqd with this TCP address, or None. May block for some
            seconds. Raises an NSQError if this is unknown.
        probe: connects to an nsqd that cannot be asked; raises the reason if this fails.
        may_create: the channel may be created, in a topic that exists.
    """

    def __init__(
        self, topic: str, channel: str, ask: Callable[[str], TopicStats | None],
        probe: Callable[[str], object] = lambda address: None, *, may_create: bool = False,
    ) -> None:
        self._topic = topic
        self._channel = channel
        self._ask = ask
        self._probe = probe
        self._may_create = may_create
        #: nsqd -> the last reason; changed by single operations, for each nsqd by one thread
        self._refused: dict[str, str] = {}

    def check(self, address: str, has_partitions: bool) -> None:
        """Return if a subscription to an nsqd changes nothing. Raises an NSQError."""
        obstacle = Obstacle.NO_CHANNEL
        try:
            found = self._ask(address)
        except NSQError as exc:
            self._probe(address)
            obstacle = Obstacle.NOT_KNOWN
            reason = f"not known whether a subscription would take messages of others: {exc}"
        else:
            if found is None:
                obstacle = Obstacle.NO_TOPIC
                reason = f"there is no topic {self._topic} there: check its spelling"
            else:
                reason = refusal(
                    self._topic, self._channel, [each.name for each in found.channels],
                    may_create=self._may_create, has_partitions=has_partitions)
        former = self._refused.pop(address, "")
        if not reason:
            return
        self._refused[address] = reason
        error = LookRefusedError(address, reason)
        error.is_repeated = reason == former
        error.obstacle = obstacle
        raise error


class LookingConsumer(Consumer):
    """A consumer whose subscriptions a guard checks."""

    def __init__(self, *args: Any, guard: LookGuard | None, **options: Any) -> None:
        config = options.get("config") or Config()
        if guard is not None:
            options["config"] = config.replace(
                max_reconnect_delay=min(config.max_reconnect_delay, LONGEST_WAIT))
        self._guard = guard
        super().__init__(*args, **options)

    def take(
        self,
        most: int,
        query: DepthQuery | None = None,
        *,
        is_over: Callable[[], bool] = lambda: False,
        holds: bool = False,
        timeout: float | None = None,
        silence: float | None = None,
    ) -> Generator[Message | None, None, None]:
        """Yield messages, and None while none arrives. Starts the consumer.

        Ends after ``most`` messages, when ``is_over`` returns true, or, with a ``query``, when the
        channel is empty, as :meth:`drain`. A message without a response is finished when the next
        one is requested; if the loop is left, the last one is requeued.

        Args:
            holds: keep all messages, and requeue them at the end.
            timeout: seconds without any connection after which the loop raises.
            silence: seconds without a message after which the loop ends if an nsqd cannot be asked
                for its depth; None: never.

        Blocks: with a ``query``, until the nsqds have answered once.

        Raises:
            ConnectError: no nsqd was connected in time, or may be subscribed to.
        """
        drain = None
        if query is not None:
            drain = Drain(
                self._core, DrainRules(self.config.drain_patience, silence, is_loop=True), query)
            drain.check()
        self.start()
        began = time.monotonic()
        held: list[Message] = []

        def is_empty(since: float) -> bool:
            # A channel that is not there is empty, too: the guard has to say so first.
            return is_over() or (drain is not None and not self._core.connections.has_untried()
                                 and drain.is_over())

        try:
            with contextlib.closing(iterate(self._core, TICK, is_empty, [None])) as messages:
                for message in messages if most and not is_over() else ():
                    if message is None:
                        self._check_reached(began, timeout)
                        yield None
                        continue
                    if holds:
                        message.enable_async()  # it would be delivered again at once
                        held.append(message)
                    yield message
                    most -= 1
                    if not most or is_over():
                        if not (message.has_responded or message.is_async):
                            message.finish()
                        break
        finally:
            for message in held:  # nothing flows now, else it would come again
                with contextlib.suppress(NSQError):  # its time has run out: nsqd requeues it
                    message.requeue(delay=0, backoff=False)

    def _check_reached(self, began: float, timeout: float | None) -> None:
        if timeout is None or self._core.connections.worked():
            return
        is_refused = isinstance(self._core.connections.last_failure, LookRefusedError)
        if time.monotonic() - began >= min(timeout, _REFUSED if is_refused else timeout):
            self._core.check_connected(began)

    def _check_nsqd(self, place: Endpoint) -> None:
        if self._guard is not None:
            self._guard.check(place.address, place.partition is not None)
