"""Decides whether and when to retry after nsqd has refused a publish or a subscription.

Follows the article's table "publish retry", except for codes that the servers use differently. See
``docs/topics/partitions.rst``.
"""

from __future__ import annotations

import random

#: The leader of the partition is moving: ask the nsqlookupds, and wait longer.
LEADER_CODES = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_TOPIC_NOT_EXIST",
})
_RAISE = frozenset({
    "E_BAD_MESSAGE", "E_BAD_BODY", "E_BAD_TOPIC", "E_EXT_NOT_SUPPORT", "E_BAD_EXT",
    "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID", "E_AUTH_FIRST", "E_AUTH_FAILED", "E_AUTH_ERROR",
    "E_AUTH_DISABLED", "E_UNAUTHORIZED",
})
#: Subscribe again with the opposite ``extend_support``.
EXTEND_CODES = frozenset({"E_SUB_EXTEND_NEED", "E_SUB_EXTEND_FORBIDDON"})
#: The topic is ordered: subscribe with SUB_ORDERED.
ORDER_CODE = "E_SUB_ORDER_IS_MUST"
#: Errors of the caller, or of stale metadata: retried once, with fresh metadata.
_RETRY_ONCE = frozenset({"E_INVALID", "E_BAD_PARTITION"})
#: Seconds before the next attempt, by the number of attempts; the last one repeats.
_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8)
#: While a leader moves: a planned move takes up to 0.7 s, an election half a minute.
_LEADER_DELAYS = (0.05, 0.1, 0.2, 0.2, 0.2, 0.2, 0.5, 1.0, 2.0)
#: The least time for an attempt before the deadline, in seconds.
_LAST_ATTEMPT = 0.02

#: Seconds that an attempt waits for fresh leaders if no nsqlookupd answers.
LOOKUP_WAIT = 0.5


def is_final(code: str, text: str, attempts: int) -> bool:
    """Return True if retrying is pointless after ``attempts`` attempts failed with this error."""
    if code in _RETRY_ONCE:
        return attempts > 1 or text.startswith("invalid command")  # a server without this command
    return code in _RAISE


def retry_delay(
    attempts: int, is_leader_moving: bool, left: float | None, rng: random.Random
) -> float | None:
    """Seconds to wait after the ``attempts``-th attempt failed; None: no time for another.

    The delay is at most half of ``left``, the seconds until the deadline, so the last second has
    attempts too. Up to a quarter is added at random so that clients do not retry in step.
    """
    delays = _LEADER_DELAYS if is_leader_moving else _DELAYS
    delay = delays[min(max(attempts, 1), len(delays)) - 1] * (1 + 0.25 * rng.random())
    if left is None:
        return delay
    return min(delay, left / 2) if left > _LAST_ATTEMPT else None


def lookup_wait(left: float | None) -> float:
    """Seconds to wait for fresh leaders before an attempt: at most half of ``left``."""
    return LOOKUP_WAIT if left is None else min(LOOKUP_WAIT, max(0.0, left / 2))
