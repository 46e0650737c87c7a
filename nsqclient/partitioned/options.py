"""The arguments of consumers and publishes that only partitioned NSQ has, and the trace log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from nsqclient.config import Config
from nsqclient.errors import ConfigError, InvalidMessageError, PartitionError, PublishError
from nsqclient.protocol import commands
from nsqclient.protocol.partitioned import extensions
from nsqclient.protocol.partitioned.extensions import (
    MAX_PARTITION, check_partition, check_trace_id, is_whole_number, make_header, partition_name,
)
from nsqclient.protocol.partitioned.selection import HeaderFilter, StartPosition
from nsqclient.protocol.partitioned.sharding import Key, check_key
from nsqclient.runtime.deadline import Deadline

trace_logger: logging.Logger = logging.getLogger("nsqclient.trace")

#: Longest ``desired_tag`` that nsqd accepts, in bytes.
_MAX_TAG = 100


class PartitionOptions(NamedTuple):
    """A consumer's arguments for a partitioned topic."""

    ordered: bool = False
    partitions: frozenset[int] | None = None
    start_at: StartPosition | Mapping[int, StartPosition] | None = None
    with_offsets: bool = False
    desired_tag: str = ""
    header_filter: HeaderFilter | None = None
    #: Consume in order if the topic is ordered. For consumers without an ``ordered`` argument.
    follows_topic: bool = False

    @property
    def given(self) -> list[str]:
        """The arguments that need a partitioned topic, as named in error texts."""
        values = (
            ("ordered=True", self.ordered), ("partitions", self.partitions is not None),
            ("start_at", self.start_at is not None), ("with_offsets=True", self.with_offsets))
        return [name for name, is_given in values if is_given] + self.needing_headers

    @property
    def needing_headers(self) -> list[str]:
        """The arguments that need a topic with headers."""
        return [name for name in ("desired_tag", "header_filter") if getattr(self, name)]

    def start_of(self, partition: int) -> StartPosition | None:
        if isinstance(self.start_at, Mapping):
            return self.start_at.get(partition)
        return self.start_at

    def identify_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.desired_tag:
            fields["desired_tag"] = self.desired_tag
        if self.header_filter is not None:
            fields["ext_filter"] = self.header_filter.identify_field()
        return fields

    def check(self, config: Config, has_nsqds: bool) -> None:
        """Raise ConfigError if an option is invalid, or two cannot be combined."""
        for name, value in (("ordered", self.ordered), ("with_offsets", self.with_offsets)):
            if not isinstance(value, bool):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        _check_tag(self.desired_tag)
        if self.header_filter is not None and not isinstance(self.header_filter, HeaderFilter):
            raise ConfigError(
                f"header_filter must be made with HeaderFilter.equal(), regexp(), glob(), any_of()"
                f" or all_of(), not {self.header_filter!r}"
            )
        if self.partitions is not None and isinstance(self.start_at, Mapping):
            for partition in sorted(set(self.start_at) - self.partitions):
                raise ConfigError(
                    f"start_at has partition {partition}, which is not in partitions: it would not"
                    " be consumed"
                )
        if has_nsqds and self.given:
            raise ConfigError(
                f"{self.given[0]} needs lookupd_http_addresses instead of nsqd_tcp_addresses: the"
                " leader of a partition changes"
            )
        has_positions = self.ordered or self.with_offsets or self.start_at is not None
        if config.sample_rate and has_positions:
            raise ConfigError("sample_rate cannot be combined with ordered, start_at or"
                              " with_offsets: nsqd refuses it")


def check_partitions(partitions: Iterable[int] | None) -> frozenset[int] | None:
    """Return the argument ``partitions`` as a set; raise ConfigError if it is invalid."""
    if partitions is None:
        return None
    hint = f"partitions must be a list of whole numbers from 0 to {MAX_PARTITION}"
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise ConfigError(f"{hint}, not {partitions!r}")
    numbers = list(partitions)
    for number in numbers:
        if not is_whole_number(number, MAX_PARTITION):
            raise ConfigError(f"{hint}, not {number!r}")
    if not numbers:
        raise ConfigError("partitions is empty: leave it out to consume all of them")
    return frozenset(numbers)


def check_start(start_at: object) -> StartPosition | Mapping[int, StartPosition] | None:
    """Return a copy of the argument ``start_at``; raise ConfigError if it is invalid."""
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
        if not is_whole_number(partition, MAX_PARTITION):
            raise ConfigError(
                f"the partitions of start_at must be whole numbers from 0 to {MAX_PARTITION}, not"
                f" {partition!r}")
    return dict(start_at)


def _check_tag(tag: object) -> None:
    if not isinstance(tag, str):
        raise ConfigError(f"desired_tag must be a str, not {tag!r}")
    try:
        size = len(tag.encode())
    except UnicodeEncodeError as exc:
        raise ConfigError(f"desired_tag {tag!r} cannot be sent as UTF-8: {exc.reason}") from None
    if size > _MAX_TAG:
        raise ConfigError(f"desired_tag has {size} bytes; nsqd accepts at most {_MAX_TAG}")


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
        """Return the options, checked. Raises InvalidMessageError."""
        key = None if self.key is None else check_key(self.key)
        if self.partition is not None:
            if key is not None:
                raise InvalidMessageError("give key= or partition=, not both")
            check_partition(self.partition)
        if self.trace_id is not None:
            check_trace_id(self.trace_id)
        if self.headers is not None:
            make_header(self.headers, self.trace_id)
        return self if key is self.key else self._replace(key=key)


NO_OPTIONS = PublishOptions()


class PreparedMessage(NamedTuple):
    """A checked message, and the parts of its command."""

    body: bytes
    trace_id: int | None = None
    header: bytes = b""
    is_logged: bool = False  #: True to write it to the trace log

    def command(self, topic: str, partition: int) -> bytes:
        """Return the command that publishes only this message."""
        if self.header:
            return extensions.pub_ext(topic, partition, self.header, self.body)
        if self.trace_id is not None:
            return extensions.pub_trace(topic, partition, self.trace_id, self.body)
        return commands.pub(partition_name(topic, partition), self.body)


def with_own_options(
    messages: Iterable[commands.Body | Outgoing], options: PublishOptions, limit: int
) -> list[tuple[bytes, PublishOptions]]:
    """Return checked messages with their options.

    A message without key and partition takes those of ``options``.
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
    """Publish messages, ``most`` at once; return the number stored. Raises as ``publish_many``."""
    stored = 0
    for start in range(0, len(messages), most):
        futures = []
        failure: BaseException | None = None
        try:
            for body, own in messages[start:start + most]:
                futures.append(publish_async(
                    topic, body, timeout=deadline.remaining(), **own._asdict()))
        except (PublishError, PartitionError) as exc:
            failure = exc
        for future in futures:
            error = future.exception()
            failure = failure or error
            stored += error is None
        if failure is not None:
            if isinstance(failure, PublishError):
                failure.stored = stored
            raise failure
    return stored


class TraceSwitch:
    """The topics that are traced. Threads: any."""

    def __init__(self) -> None:
        self._everywhere = False
        self._topics: dict[str, bool] = {}

    def set(self, enabled: bool, topic: str | None = None) -> None:
        """Turn tracing on or off for one topic, or for all, including topics set before."""
        if topic is None:
            self._everywhere = enabled
            self._topics = {}
        else:
            self._topics[topic] = enabled

    def is_on(self, topic: str) -> bool:
        return self._topics.get(topic, self._everywhere)


def log_trace(verb: str, **fields: Any) -> None:
    """Write one line to the trace log, with every known field as ``name=value``."""
    known = [f"{name}={value}" for name, value in fields.items() if value is not None]
    trace_logger.info("%s", " ".join([verb, *known]), extra={"nsq": fields})
