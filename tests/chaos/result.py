"""The result of a run. Pure: the ledger and the record in, figures out."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.chaos.ledger import Ledger
from tests.chaos.record import Sighting

#: nsqd itself may lose one of this many messages when it is stopped with SIGTERM.
MESSAGES_PER_TOLERATED_LOSS = 100_000


class Losses:
    """Sorts missing messages by the program that lost them."""

    def __init__(
        self,
        stored: Mapping[str, list[Sighting]],
        delivered: Mapping[str, list[Sighting]],
        finished: Collection[str],
        stops: Iterable[tuple[int, float, bool]],
    ) -> None:
        self._stored = stored
        self._delivered = delivered
        self._finished = finished
        self._stops = list(stops)

    def sort(self, missing: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
        """Return (ours, nsqd's at a stop in order, nsqd's at SIGKILL)."""
        ours, at_stop, at_kill = [], [], []
        for message_id in sorted(missing):
            kinds = {self._kind(message_id, seen) for seen in self._stored.get(message_id, ())}
            if None in kinds or not kinds or message_id in self._finished:
                ours.append(self._describe(message_id))
            elif "kill" in kinds:
                at_kill.append(message_id)
            else:
                at_stop.append(self._describe(message_id))
        return ours, at_stop, at_kill

    def _kind(self, message_id: str, ok: Sighting) -> str | None:
        """How the nsqd that said OK ended before it delivered; None: it did not."""
        for nsqd, at, was_kill in self._stops:
            delivered_after = any(
                seen.nsqd == nsqd and seen.at > at
                for seen in self._delivered.get(message_id, ())
            )
            if nsqd == ok.nsqd and at > ok.at - 1 and not delivered_after:
                return "kill" if was_kill else "stop"
        return None

    def _describe(self, message_id: str) -> str:
        return (
            f"{message_id}: OK {self._stored.get(message_id)}, delivered"
            f" {self._delivered.get(message_id)}, FIN {message_id in self._finished}"
        )


@dataclass
class RunResult:
    """The figures of one run; ``failures`` lists the faults."""

    seed: int
    seconds: float = 0.0
    events: int = 0
    faults: Counter[str] = field(default_factory=Counter)  #: that were injected, by name
    attempted: int = 0
    stored: int = 0
    rejected: int = 0
    unknown: int = 0
    unsettled: int = 0  #: attempts of producers that were killed before the outcome
    handled: int = 0  #: different messages
    duplicates: int = 0  #: times that one was handled again
    ends: int = 0  #: jobs that said that nothing is left
    drain: float = 0.0  #: seconds until nothing was left
    left: int = 0  #: messages on the nsqds after the drain
    worst_lag: float = 0.0  #: how late the machine woke a program up, seconds
    lost: list[str] = field(default_factory=list)
    nsqd_lost: list[str] = field(default_factory=list)
    kill_lost: int = 0
    unwanted: list[str] = field(default_factory=list)  #: rejected or never published, and handled
    late_calls: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def take(self, ledger: Ledger) -> None:
        self.attempted, self.stored = len(ledger.attempted), len(ledger.stored)
        self.rejected, self.unknown = len(ledger.rejected), len(ledger.unknown)
        self.unsettled = len(
            ledger.attempted - ledger.stored - ledger.rejected - ledger.unknown
        )
        self.handled = len(ledger.handled)
        self.duplicates = ledger.handled.total() - self.handled
        self.lost, self.unwanted = sorted(ledger.lost), sorted(ledger.unwanted)
        self.late_calls, self.surprises = ledger.late_calls, ledger.surprises
        self.worst_lag = ledger.worst_lag

    @property
    def failures(self) -> list[str]:
        lines = [
            f"{name}: {entry}"
            for name in ("lost", "unwanted", "late_calls", "stuck", "surprises", "errors")
            for entry in getattr(self, name)
        ]
        if len(self.nsqd_lost) * MESSAGES_PER_TOLERATED_LOSS > self.stored:
            lines += [f"nsqd_lost: {entry}" for entry in self.nsqd_lost]
        if self.left:
            lines.append(f"{self.left} messages are left after the drain")
        return lines

    def summary(self) -> dict[str, object]:
        figures = {key: len(value) if isinstance(value, list) else value
                   for key, value in vars(self).items()}
        return {**figures, "faults": dict(self.faults)}
