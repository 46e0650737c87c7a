"""What nsq_to_http does with a message that a destination refused: ``--on-status``. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import NamedTuple


class Outcome(enum.Enum):
    """What became of one try to send a message."""

    ARRIVED = "arrived"
    RETRY = "retry"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class Rule(NamedTuple):
    """Statuses from ``first`` to ``last`` have an outcome."""

    first: int
    last: int
    outcome: Outcome


_STATUS = re.compile(r"([3-5])xx|([3-5]\d\d)(?:-([3-5]\d\d))?")
_ACTIONS = [outcome.value for outcome in Outcome if outcome is not Outcome.ARRIVED]


def parse_rule(text: str) -> Rule:
    """Read ``404=drop``, ``4xx=dead-letter`` or ``500-503=retry``.

    Raises:
        ValueError: it is no such rule.
    """
    status, _, action = text.partition("=")
    found = _STATUS.fullmatch(status)
    if found is None or action not in _ACTIONS:
        raise ValueError(
            "write STATUS=ACTION: a status is 404, 4xx or 400-428 (300 to 599), an action"
            f" {', '.join(_ACTIONS)}")
    group, first, last = found.groups()
    if group is not None:
        return Rule(int(group) * 100, int(group) * 100 + 99, Outcome(action))
    rule = Rule(int(first), int(last or first), Outcome(action))
    if rule.last < rule.first:
        raise ValueError(f"{status} is an empty range")
    return rule


def outcome_of(status: int | None, rules: Sequence[Rule]) -> Outcome:
    """What the first rule that names a status says; none does, or no answer came: retry."""
    if status is not None:
        for rule in rules:
            if rule.first <= status <= rule.last:
                return rule.outcome
    return Outcome.RETRY
