"""The ledger: each process notes each message in a file that outlives SIGKILL.

A line is a letter, a space and the rest. Producers write ``A id`` (about to be published), and
``S``, ``R`` or ``U`` with it (stored, rejected, unknown); consumers write ``H id`` (handled).
Both write ``L what overrun`` (a call that returned late), ``E text`` (an exception that no page
of the docs names), ``D what seconds`` (a call of the end of life, how long it took) and ``T lag``
(how late this process is woken up, in seconds); consumers ``C json`` (how they are).

A scenario that counts stored and handled messages itself fills in a Ledger without files.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

#: Seconds after its deadline by which a call must have returned.
GRACE = 1.0


class LedgerWriter:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, letter: str, *rests: str) -> None:
        os.write(self._fd, "".join(f"{letter} {rest}\n" for rest in rests).encode())

    def close(self) -> None:
        os.close(self._fd)

    def note_call(self, what: str, overrun: float) -> None:
        """Note a call that ended ``overrun`` seconds after its deadline (negative: before)."""
        if overrun > GRACE:
            self.write("L", f"{what} {overrun:.3f}")


class Ledger:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self.attempted: set[str] = set()
        self.stored: set[str] = set()
        self.rejected: set[str] = set()
        self.unknown: set[str] = set()
        self.handled: Counter[str] = Counter()
        self.late_calls: list[str] = []
        self.surprises: list[str] = []
        self.ends: list[str] = []
        self.worst_lag = 0.0
        #: The last state of each consumer, by the name of its file.
        self.states: dict[str, dict[str, Any]] = {}

    def read(self) -> None:
        for path in sorted(self._folder.glob("*.ledger")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data[:data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                self._take(path.stem, line[0], line[2:])

    @property
    def lost(self) -> set[str]:
        """Stored messages that were not handled."""
        return self.stored.difference(self.handled)

    @property
    def unwanted(self) -> set[str]:
        """Handled messages that were rejected or never published."""
        return set(self.handled) - self.stored - (self.attempted - self.rejected)

    def _take(self, name: str, letter: str, rest: str) -> None:
        if letter == "H":
            self.handled[rest] += 1
        elif letter in "ASRU":
            {"A": self.attempted, "S": self.stored, "R": self.rejected,
             "U": self.unknown}[letter].add(rest)
        elif letter == "C":
            self.states[name] = json.loads(rest)
        elif letter == "T":
            self.worst_lag = max(self.worst_lag, float(rest))
        else:
            {"L": self.late_calls, "E": self.surprises, "D": self.ends}[letter].append(
                f"{name}: {rest}"
            )
