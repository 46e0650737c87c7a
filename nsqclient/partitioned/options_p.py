"""A publish to a partition: the caller's arguments, and the parts of its command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from nsqclient.errors import InvalidMessageError, PartitionError, PublishError
from nsqclient.protocol.partitioned.sharding import Key, check_key
from nsqclient.protocol import commands, extensions
from nsqclient.protocol.extensions import (
    check_partition, check_trace_id, make_header, partition_name,
)
from nsqclient.runtime.deadline import Deadline


class Outgoing(NamedTuple):
    """A message to publish to a partitioned NSQ; the fields are arguments of ``publish``."""

    body: bytes
    key: Key | None = None
    headers: Mapping[str, Any] | None = None
    partition: int | None = None


class PublishOptions(NamedTuple):
    """The arguments of ``Producer.publish`` that need a partitioned NSQ."""

    key: Key | None = None
    trace_id: int | None = None
    headers: Mapping[str, Any] | None = None
    partition: int | None = None

    def __bool__(self) -> bool:
        """True if any is given."""
        return self != (None, None, None, None)

    def checked(self) -> PublishOptions:
        """Return them as they are used.

        Raises:
            InvalidMessageError: one of them cannot be right.
        """
        options = self
        if options.key is not None:
            key = check_key(options.key)
            if options.partition is not None:
                raise InvalidMessageError("give key= or partition=, not both")
            if key is not options.key:
                options = options._replace(key=key)
        elif options.partition is not None:
            check_partition(options.partition)
        if options.trace_id is not None:
            check_trace_id(options.trace_id)
        if options.headers is not None:
            make_header(options.headers, options.trace_id)
        return options


#: Without any of them.
NO_OPTIONS = PublishOptions()


class PreparedMessage(NamedTuple):
    """A checked message, and the parts of its command."""

    body: bytes
    trace_id: int | None = None
    header: bytes = b""
    is_logged: bool = False  #: in the trace log

    def command(self, topic: str, partition: int) -> bytes:
        """Return the command that brings it alone to a partition."""
        if self.header:
            return extensions.pub_ext(topic, partition, self.header, self.body)
        if self.trace_id is not None:
            return extensions.pub_trace(topic, partition, self.trace_id, self.body)
        return commands.pub_unchecked(partition_name(topic, partition), self.body)


def with_own_options(
    messages: Iterable[commands.Body | Outgoing], options: PublishOptions, limit: int
) -> list[tuple[bytes, PublishOptions]]:
    """Check messages that differ in more than their bodies; return them with their options.

    Args:
        options: of those without their own. limit: bytes of a body.
    """
    found = []
    for message in messages:
        if not isinstance(message, Outgoing):
            message = Outgoing(commands.check_body(message, limit))
        key, partition = message.key, message.partition
        if key is None and partition is None:
            key, partition = options.key, options.partition
        own = PublishOptions(key, None, message.headers, partition).checked()
        found.append((commands.check_body(message.body, limit), own))
    return found


def publish_each(
    publish_async: Callable[..., Future[Any]], topic: str,
    messages: list[tuple[bytes, PublishOptions]], most: int, deadline: Deadline,
) -> int:
    """Store messages, ``most`` of them at once; return how many. Raises as ``publish_many``."""
    stored = 0
    for start in range(0, len(messages), most):
        futures = []
        failure: BaseException | None = None
        for body, own in messages[start:start + most]:
            try:
                futures.append(publish_async(
                    topic, body, timeout=deadline.remaining(), **own._asdict()))
            except (PublishError, PartitionError) as exc:
                failure = exc
                break
        for future in futures:
            error = future.exception()
            failure = failure or error
            stored += error is None
        if failure is not None:
            if isinstance(failure, PublishError):
                failure.stored = stored
            raise failure
    return stored
