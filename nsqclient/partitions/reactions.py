"""What follows from a refusal: the retry table of publishes, and that of subscriptions.

The table of the article ("publish retry") with what the servers were seen to answer; both are
in ``docs/topics/partitions.rst``.
"""

from __future__ import annotations

from enum import Enum

#: The server led the partition a moment ago, or does not yet: ask nsqlookupd, and wait longer.
LEADER_CODES = frozenset({
    "E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_TOPIC_NOT_EXIST",
})
_RAISE = frozenset({
    "E_BAD_MESSAGE", "E_BAD_BODY", "E_BAD_TOPIC", "E_EXT_NOT_SUPPORT", "E_BAD_EXT",
    "E_INVALID_JSON_HEADER", "INVALID_TRACE_ID", "E_AUTH_FIRST", "E_AUTH_FAILED", "E_AUTH_ERROR",
    "E_AUTH_DISABLED", "E_UNAUTHORIZED",
})
#: Errors that mean that the caller, or stale metadata, is wrong: one try more with fresh ones.
_ONCE_MORE = frozenset({"E_INVALID", "E_BAD_PARTITION"})
#: Seconds before the next try, by how many there were; longer while a leader moves.
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
_LEADER_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)


class Reaction(Enum):
    """What to do after a publish was refused."""

    RAISE = "raise"  #: the same publish can never succeed
    RETRY = "retry"  #: it may succeed in a moment
    REFRESH = "refresh"  #: it may succeed where the leader is now: ask the nsqlookupds


def on_publish_refused(code: str, text: str, tries: int) -> Reaction:
    """Return what to do after the ``tries``-th try was refused with this code."""
    if code in _RAISE:
        return Reaction.RAISE
    if code in _ONCE_MORE:
        # A server that does not know the command will not learn it.
        is_hopeless = tries > 1 or text.startswith("invalid command")
        return Reaction.RAISE if is_hopeless else Reaction.REFRESH
    return Reaction.REFRESH if code in LEADER_CODES else Reaction.RETRY


def pause_before(tries: int, is_leader_moving: bool) -> float:
    """Seconds to wait before the try after the ``tries``-th, which failed."""
    pauses = _LEADER_PAUSES if is_leader_moving else _PAUSES
    return pauses[min(max(tries, 1), len(pauses)) - 1]


class SubReaction(Enum):
    """What to do after a subscription to a partition was refused."""

    REFRESH = "refresh"  #: ask the nsqlookupds, then connect to whoever leads it
    FLIP_EXTEND = "flip extend"  #: connect again with the other ``extend_support``
    GIVE_UP = "give up"  #: the same subscription can never succeed


def on_sub_refused(code: str) -> SubReaction:
    """Return what to do after SUB was refused with this code."""
    if code in ("E_SUB_EXTEND_NEED", "E_SUB_EXTEND_FORBIDDON"):
        return SubReaction.FLIP_EXTEND
    if code == "E_SUB_ORDER_IS_MUST":
        return SubReaction.GIVE_UP
    return SubReaction.REFRESH
