"""What a nsqlookupd says of a topic: what kind it is, and who leads its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TopicMeta(NamedTuple):
    """The metadata of a topic, the same for all its partitions."""

    partition_num: int = 0  #: in all, whoever leads them; what keys are divided among
    replica: int = 0
    ordered: bool = False  #: it is consumed with SUB_ORDERED, and published to with a key
    extended: bool = False  #: its messages have JSON headers
    multi_part: bool = False
    channels_are_registered: bool = False  #: SUB does not make a channel


class Place(NamedTuple):
    """Where messages come from: an nsqd, and one partition where it has those."""

    address: str
    partition: int | None = None

    def __str__(self) -> str:
        return self.address if self.partition is None else f"{self.address}/{self.partition}"


@dataclass(frozen=True)
class TopicRoutes:
    """One answer to ``/lookup``, or several merged."""

    #: nsqds without partitions: all of a stock cluster.
    plain: tuple[str, ...] = ()
    #: partition -> the nsqd that leads it. May be incomplete for the moment.
    partitions: Mapping[int, str] = field(default_factory=dict)
    #: None: a stock nsqlookupd, or one that does not know the topic.
    meta: TopicMeta | None = None
    #: The nsqlookupd is one of a partitioned cluster, whether it knows the topic or not.
    is_partitioned: bool = False

    @property
    def partition_num(self) -> int:
        """How many partitions the topic has in all; 0 where nobody said."""
        return 0 if self.meta is None else self.meta.partition_num
