"""The key of a record or message for a partitioned NSQ, and what is said where one is needed."""

from __future__ import annotations

import re

from nsqclient import InvalidMessageError, PartitionError
from nsqclient.cli.json_filter import NotAnObject, parse_object


def key_of(body: bytes, field: str) -> str:
    """Return the field's value as text.

    Raises:
        InvalidMessageError: the body is no JSON object, or the field is no text or whole number.
    """
    try:
        found = parse_object(body).get(field)
    except NotAnObject as exc:
        raise InvalidMessageError(f"no key: {exc}: {body[:100]!r}") from exc
    value = None if found is None else found.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidMessageError(
            f"no key: the field {field!r} must be a text or a whole number: {body[:100]!r}")
    return str(value)


def in_flags(error: Exception, key_flags: str) -> str:
    """Say an error; where it asks for arguments of a publish, with the flags of a tool.

    Args:
        key_flags: those that decide on the partition.
    """
    text = str(error)
    if isinstance(error, PartitionError):
        text = re.sub("give key=.*", f"give {key_flags}", text)
        text = text.replace("key= needs", f"{key_flags} needs")
        text = text.replace("defer= needs", "--defer needs")
    return text
