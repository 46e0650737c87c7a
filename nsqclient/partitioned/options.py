"""The arguments of consumers and publishes for partitioned NSQ alone, and their check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.errors import ConfigError, InvalidMessageError, PartitionError, PublishError
from nsqclient.protocol import commands
from nsqclient.protocol.partitioned import extensions
from nsqclient.protocol.partitioned.extensions import (
    MAX_PARTITION, check_partition, check_trace_id, make_header, partition_name,
)
from nsqclient.protocol.partitioned.selection import HeaderFilter, StartPosition
from nsqclient.protocol.partitioned.sharding import Key, check_key
from nsqclient.runtime.deadline import Deadline

#: Longest ``desired_tag`` that nsqd accepts, in bytes.
_MAX_TAG = 100


class PartitionOptions(NamedTuple):
    """A consumer's requirements on a partitioned topic. The defaults require nothing."""

    ordered: bool = False
    #: The partitions to consume; None: all of them.
    partitions: frozenset[int] | None = None
    #: Start position of each partition, or one for all partitions.
    start_at: StartPosition | Mapping[int, StartPosition] | None = None
    with_offsets: bool = False
    desired_tag: str = ""
    header_filter: HeaderFilter | None = None
    #: Consume in order only if the topic is ordered. For consumers without an ``ordered`` argument.
    follows_topic: bool = False

    @property
    def given(self) -> list[str]:
        """The arguments that need a partitioned topic, as the user wrote them."""
        return [
            name for name, is_given in (
                ("ordered=True", self.ordered), ("partitions", self.partitions is not None),
                ("start_at", self.start_at is not None), ("with_offsets=True", self.with_offsets),
                *((name, True) for name in self.needing_headers),
            ) if is_given
        ]

    @property
    def needing_headers(self) -> list[str]:
        """The arguments that need a topic with headers."""
        return [
            name for name, is_given in (
                ("desired_tag", bool(self.desired_tag)),
                ("header_filter", self.header_filter is not None),
            ) if is_given
        ]

    def start_of(self, partition: int) -> StartPosition | None:
        """Start position of a partition. None: the current position of its channel."""
        if isinstance(self.start_at, Mapping):
            return self.start_at.get(partition)
        return self.start_at

    def identify_fields(self) -> dict[str, Any]:
        """Return the fields of IDENTIFY for these options."""
        fields: dict[str, Any] = {}
        if self.desired_tag:
            fields["desired_tag"] = self.desired_tag
        if self.header_filter is not None:
            fields["ext_filter"] = self.header_filter.identify_field()
        return fields


def check_partition_options(
    config: Config,
    *,
    ordered: bool,
    partitions: Iterable[int] | None,
    start_at: StartPosition | Mapping[int, StartPosition] | None,
    with_offsets: bool,
    desired_tag: str,
    header_filter: HeaderFilter | None,
    has_nsqds: bool,
    is_batch: bool,
    has_policy: bool,
) -> PartitionOptions:
    """Check the arguments. Raises ConfigError if one is invalid, or two cannot be combined.

    Args:
        has_nsqds, is_batch, has_policy: True if nsqd addresses, a BatchHandler or ``on_blocked``
            were given.
    """
    for name, value in (("ordered", ordered), ("with_offsets", with_offsets)):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be True or False, not {value!r}")
    options = PartitionOptions(
        ordered, _check_partitions(partitions), _check_start(start_at),
        with_offsets, desired_tag, header_filter,
    )
    if has_policy and not ordered:
        raise ConfigError("on_blocked is for ordered=True; else see on_giving_up")
    if is_batch and ordered:
        raise ConfigError("a BatchHandler cannot keep an order: give a plain handler")
    _check_tag(desired_tag)
    if header_filter is not None and not isinstance(header_filter, HeaderFilter):
        raise ConfigError(
            f"header_filter must be made with HeaderFilter.equal(), regexp(), glob(), any_of() or"
            f" all_of(), not {header_filter!r}"
        )
    _check_starts_are_consumed(options)
    if has_nsqds and options.given:
        raise ConfigError(
            f"{options.given[0]} needs lookupd_http_addresses instead of nsqd_tcp_addresses: the"
            " leader of a partition changes"
        )
    if config.sample_rate and (ordered or with_offsets or start_at is not None):
        raise ConfigError("sample_rate cannot be combined with ordered, start_at or with_offsets:"
                          " nsqd refuses it")
    return options


def _check_partitions(partitions: Iterable[int] | None) -> frozenset[int] | None:
    if partitions is None:
        return None
    hint = f"partitions must be a list of whole numbers from 0 to {MAX_PARTITION}"
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise ConfigError(f"{hint}, not {partitions!r}")
    numbers = list(partitions)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not (
            0 <= number <= MAX_PARTITION
        ):
            raise ConfigError(f"{hint}, not {number!r}")
    if not numbers:
        raise ConfigError("partitions is empty: leave it out to consume all of them")
    return frozenset(numbers)


def _check_start(
    start_at: object
) -> StartPosition | Mapping[int, StartPosition] | None:
    if start_at is None or isinstance(start_at, StartPosition):
        return start_at
    hint = (
        "start_at must be a StartPosition (offset(), timestamp(), count() or end()), or a dict of"
        " partition and StartPosition"
    )
    if not isinstance(start_at, Mapping):
        raise ConfigError(f"{hint}, not {start_at!r}")
    for partition, start in start_at.items():
        if not isinstance(start, StartPosition):
            raise ConfigError(f"{hint}, not {start!r}")
    _check_partitions(start_at or None)
    return dict(start_at)


def _check_starts_are_consumed(options: PartitionOptions) -> None:
    if options.partitions is None or not isinstance(options.start_at, Mapping):
        return
    others = sorted(set(options.start_at) - options.partitions)
    if others:
        raise ConfigError(
            f"start_at has partition {others[0]}, which partitions leaves out: it would not be"
            " consumed"
        )


def _check_tag(tag: object) -> None:
    if not isinstance(tag, str):
        raise ConfigError(f"desired_tag must be a text, not {tag!r}")
    try:
        size = len(tag.encode())
    except UnicodeEncodeError as exc:
        raise ConfigError(f"desired_tag {tag!r} cannot be sent as UTF-8: {exc.reason}") from None
    if size > _MAX_TAG:
        raise ConfigError(f"desired_tag of {size} bytes: nsqd takes {_MAX_TAG}")


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
        return self != (None, None, None, None)

    def checked(self) -> PublishOptions:
        """Return them as they are used. Raises InvalidMessageError if one cannot be right."""
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
    """Return checked messages with their options; ``options`` are for those without their own."""
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
