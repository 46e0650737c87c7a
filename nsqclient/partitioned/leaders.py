"""``PartitionLeaders``: which nsqds lead the partitions of a topic. Pure.

Not thread-safe: ConnectionManager calls it under its lock, and acts on the results afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nsqclient.consumer.connections import NsqdEntry, Redial
from nsqclient.partitioned.options import PartitionOptions
from nsqclient.errors import NSQError, PartitionError, ServerError
from nsqclient.protocol.partitioned.lookup_table import LookupTable, TopicRoutes
from nsqclient.protocol.partitioned.extensions import EXTEND_CODES, LEADER_CODES, ORDER_CODE
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.log_lines import PrefixedLogger


@dataclass
class PartitionEntry(NsqdEntry):
    """One nsqd, or one partition of it. Guarded by ConnectionManager's lock."""

    extended: bool | None = None  # messages have headers, according to nsqd's refusal
    has_followed_order: bool = False  # redialed because nsqd said that the topic is ordered


def show_partitions(partitions: Sequence[int]) -> str:
    word = "partition" if len(partitions) == 1 else "partitions"
    return f"{word} {', '.join(map(str, partitions))}"


def warn_of_few_in_flight(log: PrefixedLogger, max_in_flight: int, partitions: int) -> None:
    log.warning(
        "max_in_flight %d is less than the number of partitions: they take turns, and each"
        " waits for seconds; set max_in_flight to at least %d", max_in_flight, partitions,
    )


class UnreadReminder:
    """Decides when to log the unread partitions: after 5 s, then at intervals that double."""

    _FIRST, _LONGEST = 5.0, 300.0  # seconds

    def __init__(self) -> None:
        self._since: float | None = None
        self._due = 0.0  # time of the next line; 0 before the first line

    def note(self, is_any: bool, now: float) -> float | None:
        """Return how long partitions have been unread, in seconds, if a line is due.

        Returns 0 if all partitions are read again and a line was logged before; otherwise None.
        """
        if not is_any:
            was_logged, self._since, self._due = self._due > 0, None, 0.0
            return 0.0 if was_logged else None
        self._since = now if self._since is None else self._since
        seconds = now - self._since
        if seconds < self._FIRST or now < self._due:
            return None
        self._due = now + min(max(seconds, self._FIRST), self._LONGEST)
        return seconds


class PartitionTarget(NamedTuple):
    place: Endpoint
    ordered: bool = False  #: consume it with SUB_ORDERED
    extended: bool = False  #: its messages have headers; nsqd refuses a wrong value
    http_address: str = ""  #: HTTP address of the nsqd; empty: unknown


class PartitionLeaders:
    """Partition leaders according to nsqlookupds, corrected by the answers of the nsqds."""

    def __init__(
        self, topic: str, lookupds: Iterable[str], options: PartitionOptions
    ) -> None:
        self.table: LookupTable = LookupTable(lookupds)
        self._topic = topic
        self._options = options
        #: An nsqd has said that the topic is ordered.
        self.must_order: bool = False
        self._has_no_headers = False  # an nsqd has said so
        #: Set if an nsqd that was given by its address is a partitioned one.
        self.refusal: PartitionError | None = None
        self.reminder: UnreadReminder = UnreadReminder()

    def left_behind(
        self, merged: TopicRoutes, entries: Mapping[Endpoint, PartitionEntry]
    ) -> list[Endpoint]:
        """Return the endpoints to drop, which no longer lead their partition.

        A connected former leader stays until the new leader accepts a subscription, because
        nsqlookupd may be wrong.
        """
        return [
            place for place, entry in entries.items()
            if place.partition is not None
            and merged.partitions.get(place.partition) != place.address
            and (entry.sub is None or place.partition not in merged.partitions)
        ]

    def take_over(
        self, place: Endpoint, entries: Mapping[Endpoint, PartitionEntry]
    ) -> list[Endpoint]:
        """Note that ``place`` accepted a subscription; return the partition's former leaders."""
        if place.partition is None:
            return []
        self.table.on_accepted(place.partition, place.address)
        return [other for other in entries
                if other.partition == place.partition and other != place]

    def unread(self, entries: Mapping[Endpoint, PartitionEntry]) -> list[int]:
        """Return the partitions without a connection, or [] if the topic cannot be consumed."""
        merged = self.table.merged()
        if not merged.partition_num or self.incompatibility() is not None:
            return []
        connected = {place.partition for place, one in entries.items()
                     if place.partition is not None and one.sub is not None and one.is_open}
        return [number for number in range(merged.partition_num)
                if number not in connected and number not in merged.excluded]

    def incompatibility(self) -> PartitionError | None:
        """Return the reason why the topic cannot be consumed with these options, or None."""
        if self.refusal is not None:
            return self.refusal
        merged = self.table.merged()
        options, meta = self._options, merged.meta
        must_order = self.must_order or meta is not None and meta.ordered
        if must_order and not (options.ordered or options.follows_topic):
            return PartitionError(
                f"topic {self._topic} is ordered: consume it with Consumer(..., ordered=True)"
            )
        if options.given and merged.plain:
            return PartitionError(
                f"{options.given[0]} needs partitions, and {merged.plain[0]} has topic"
                f" {self._topic} without any: it is a stock nsqd"
            )
        has_no_headers = self._has_no_headers if meta is None else (
            meta.partition_num > 0 and not meta.extended)
        if options.needing_headers and has_no_headers:
            return PartitionError(
                f"{options.needing_headers[0]} needs messages with headers, and topic {self._topic}"
                " has none: it was not created with extend=true"
            )
        return self._missing_partition(merged)

    def _missing_partition(self, merged: TopicRoutes) -> PartitionError | None:
        """Return an error if the options name a partition that the topic does not have."""
        start_at = self._options.start_at
        wanted = {*(self._options.partitions or ()),
                  *(start_at if isinstance(start_at, Mapping) else ())}
        missing = [number for number in sorted(wanted) if number >= merged.partition_num]
        if not missing or not merged.partition_num:
            return None
        return PartitionError(
            f"topic {self._topic} has no partition {missing[0]}: it has 0 to"
            f" {merged.partition_num - 1}"
        )

    def target(self, place: Endpoint, entry: PartitionEntry) -> PartitionTarget:
        if place.partition is None:
            return PartitionTarget(place)
        merged, options = self.table.merged(), self._options
        must_order = self.must_order or merged.meta is not None and merged.meta.ordered
        has_headers = entry.extended
        if has_headers is None:  # nsqd has not refused: use the metadata, or the options
            has_headers = merged.meta.extended if merged.meta else bool(options.needing_headers)
        return PartitionTarget(
            place, options.ordered or options.follows_topic and must_order,
            has_headers, merged.http_addresses.get(place.address, ""))

    def on_dial_failed(self, place: Endpoint, entry: PartitionEntry, error: NSQError) -> Redial:
        if place.partition is None or not isinstance(error, ServerError):
            return Redial.LATER
        if error.code in LEADER_CODES:
            self.table.on_refused(place.partition, place.address)
        if error.code == ORDER_CODE:
            self.must_order = True
            if not self._options.follows_topic:
                return Redial.NEVER
            had_followed, entry.has_followed_order = entry.has_followed_order, True
            return Redial.LATER if had_followed else Redial.AT_ONCE
        if error.code in EXTEND_CODES:
            was_told, extended = entry.extended is not None, EXTEND_CODES[error.code]
            if self._options.needing_headers and not extended:
                self._has_no_headers = True
                return Redial.LATER if self.incompatibility() is None else Redial.NEVER
            entry.extended = extended
            return Redial.LATER if was_told else Redial.AT_ONCE
        return Redial.LATER
