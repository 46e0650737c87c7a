"""``Unanswered``: the batches that were sent and have no verdict, and which nsqd has room for more.

Under load few are unanswered, so that the queue fills and the batches grow. Each nsqd has room of
its own: one that does not answer holds up what it was given, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nsqclient.publishing.batches import Batch
from nsqclient.publishing.link import Link

#: Commands without a verdict per nsqd: enough to keep the wire busy.
_ROOM = 3


class Unanswered:
    """Batches without a verdict. Not thread-safe: the pipeline's lock guards it."""

    def __init__(self) -> None:
        self._batches: set[Batch] = set()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def add(self, batch: Batch, link: Link, now: float) -> None:
        """It is about to be sent there."""
        batch.is_given_to(link, now)
        self._batches.add(batch)

    def remove(self, batch: Batch) -> bool:
        """It has its verdict, or will not get one; False when it is not here (any more)."""
        if batch not in self._batches:
            return False
        self._batches.discard(batch)
        return True

    def take_all(self) -> set[Batch]:
        """Remove and return all of them."""
        batches, self._batches = self._batches, set()
        return batches

    def take_late(self, now: float) -> list[Batch]:
        """Remove and return those whose time is over."""
        late = [batch for batch in self._batches if batch.until <= now]
        self._batches.difference_update(late)
        return late

    def met_silence(self, now: float) -> list[Batch]:
        """Return those whose nsqd has done nothing for a while. Each is told once in a while."""
        return [batch for batch in self._batches if batch.met_silence(now)]

    def next_look(self) -> float | None:
        """When ``take_late`` and ``met_silence`` must be asked again; None: not by themselves."""
        return min((batch.look_at for batch in self._batches), default=None)

    def has_room(self, links: tuple[Link, ...]) -> bool:
        """Tell whether some nsqd may get a command, or none is there at all."""
        return not links or len(self._batches) < _ROOM or self.choose(links) is not None

    def choose(self, links: Iterable[Link]) -> Link | None:
        """Return the first nsqd that has room."""
        busy = Counter(batch.link for batch in self._batches)
        return next((link for link in links if busy[link] < _ROOM), None)
