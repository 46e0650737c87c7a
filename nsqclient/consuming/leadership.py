"""``Leadership``: what a consumer makes of the leaders of partitions; decides, and does nothing.

Not thread-safe: Membership calls it under its lock, and does what comes out after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nsqclient.consuming.subscription import Subscription
from nsqclient.errors import NSQError, PartitionError, ServerError
from nsqclient.partitions.lookup_table import LookupTable
from nsqclient.partitions.reactions import LEADER_CODES, SubReaction, on_sub_refused
from nsqclient.partitions.routes import Place, TopicRoutes


@dataclass
class Known:
    """One nsqd, or one partition of it, that a consumer wants, or wanted. By Membership's lock."""

    direct: bool
    has_worked: bool = False  # it took our subscription once
    sub: Subscription | None = None  # open, or being opened
    opened_at: float = 0.0  # when ``sub`` was subscribed, on time.monotonic()
    failures: int = 0  # dials in a row that failed
    listed_at: float = 0.0  # when a nsqlookupd named it last, on time.monotonic()
    extended: bool = False  # its messages have headers
    has_flipped: bool = False  # that was tried the other way since it worked


class Leadership:
    """The nsqlookupds of a consumer, what they say of leaders, and what nsqds said to that.

    Args:
        ordered: whether the consumer asked for order.
        may_have_partitions: whether whoever dials can subscribe to partitions.
    """

    def __init__(
        self, topic: str, lookupds: Iterable[str], *, ordered: bool, may_have_partitions: bool
    ) -> None:
        self.table = LookupTable(lookupds)
        self._topic = topic
        self._ordered = ordered
        self._may_have_partitions = may_have_partitions
        self._must_order = False  # nsqd said so, whatever nsqlookupds say
        self._seen = set(self.table.addresses)

    def take_new(self, lookupds: Iterable[str]) -> list[str]:
        """Return those nsqlookupds that were never named before, once."""
        new = [address for address in lookupds if address not in self._seen]
        self._seen.update(new)
        return new

    def follow(
        self, merged: TopicRoutes, known: dict[Place, Known], lost: set[Place]
    ) -> tuple[list[Place], list[Subscription]]:
        """Return the leaders to be connected to, and connections to end.

        A connection to a former leader is kept until the new one is there: a nsqlookupd may be
        wrong, and only a leader takes subscriptions.
        """
        leaders = [Place(nsqd, partition) for partition, nsqd in merged.partitions.items()]
        gone = []
        for place, one in list(known.items()):
            if place.partition is None or place in leaders:
                continue
            if one.sub is None or place.partition not in merged.partitions:
                del known[place]
                lost.discard(place)
                if one.sub is not None:
                    gone.append(one.sub)
        return leaders, gone

    def take_over(
        self, place: Place, known: dict[Place, Known], lost: set[Place]
    ) -> list[Subscription]:
        """This place took our subscription; return connections to former leaders, to be ended."""
        if place.partition is None:
            return []
        self.table.on_accepted(place.partition, place.address)
        former = [other for other in known
                  if other.partition == place.partition and other != place]
        subs = [known.pop(other).sub for other in former]
        lost.difference_update(former)
        return [sub for sub in subs if sub is not None]

    def why_unfit(self) -> PartitionError | None:
        """Say why the topic cannot be consumed as it was asked for."""
        merged = self.table.merged()
        if merged.partitions and not self._may_have_partitions:
            return PartitionError(
                f"topic {self._topic} has partitions, which cannot be consumed here: use Consumer"
            )
        must_order = self._must_order or merged.meta is not None and merged.meta.ordered
        if must_order and not self._ordered:
            return PartitionError(
                f"topic {self._topic} is ordered: consume it with Consumer(..., ordered=True)"
            )
        if self._ordered and merged.plain:
            return PartitionError(
                f"ordered=True needs partitions, and {merged.plain[0]} has topic {self._topic}"
                " without any: it is a stock nsqd"
            )
        return None

    def flip(self, known: Known, error: NSQError) -> bool:
        """Tell whether the next dial is to say the other thing about headers, and note it."""
        if not isinstance(error, ServerError) or known.has_flipped:
            return False
        if on_sub_refused(error.code) is not SubReaction.FLIP_EXTEND:
            return False
        known.has_flipped = True
        known.extended = not known.extended
        return True

    def may_dial_again(self, place: Place, error: NSQError) -> bool:
        """Learn from a failed dial; tell whether another may help."""
        if place.partition is None or not isinstance(error, ServerError):
            return True
        if error.code in LEADER_CODES:
            self.table.on_refused(place.partition, place.address)
        if on_sub_refused(error.code) is SubReaction.GIVE_UP:
            self._must_order = True
            return False
        return True
