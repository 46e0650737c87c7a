"""The key of a record or message for a partitioned NSQ: a field of its JSON object."""

from __future__ import annotations

from nsqclient import InvalidMessageError
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
