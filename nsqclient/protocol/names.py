"""Checks of the names of topics and channels.

nsqd's rule: ``^[.a-zA-Z0-9_-]+(#ephemeral)?$``, 1 to 64 characters including the suffix.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nsqclient.errors import InvalidChannelError, InvalidTopicError

MAX_NAME_LENGTH = 64

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_RULE = (
    "use 1 to 64 of the characters a-z A-Z 0-9 . _ - , optionally ending in #ephemeral"
    " (which counts toward the 64)"
)


@lru_cache(maxsize=1024)  # publishers check the same few names again and again
def is_valid_name(name: str) -> bool:
    # fullmatch, because match with "$" would accept a trailing newline.
    return 1 <= len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    """True if nsqd deletes a channel after its last consumer, or a topic after its last channel."""
    return name.endswith("#ephemeral")


def check_topic(name: object) -> str:
    """Return ``name`` if it is a valid topic name. Raises InvalidTopicError."""
    if isinstance(name, str) and is_valid_name(name):
        return name
    if not isinstance(name, str):
        raise InvalidTopicError(
            f"the topic must be a str, not {type(name).__name__}: pass the topic as the first"
            " argument")
    raise InvalidTopicError(f"topic name {name!r} is not valid: {_RULE}")


def check_channel(name: object) -> str:
    """Return ``name`` if it is a valid channel name. Raises InvalidChannelError."""
    if isinstance(name, str) and is_valid_name(name):
        return name
    if callable(name):
        raise InvalidChannelError(
            "the channel is missing: a function was passed in its place; pass topic, channel,"
            " handler")
    raise InvalidChannelError(f"channel name {name!r} is not valid: {_RULE}")
