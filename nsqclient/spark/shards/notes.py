"""What is in a note: the messages that are perhaps not finished at nsqd."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from nsqclient.spark.errors import DamagedSegmentError


def encode_note(writer: str, ids: Mapping[str, Iterable[bytes]]) -> bytes:
    """Build a note: the ids, by nsqd, that are perhaps not finished there."""
    return json.dumps({
        "v": 1, "writer": writer,
        "ids": {nsqd: [key.decode() for key in keys] for nsqd, keys in ids.items()},
    }).encode()


def decode_note(url: str, key: str, data: bytes) -> dict[str, list[bytes]]:
    """Read the ids of a note.

    Raises:
        DamagedSegmentError: it is not what was written.
    """
    try:
        found = json.loads(data)
        return {nsqd: [text.encode() for text in texts] for nsqd, texts in found["ids"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise DamagedSegmentError(url, f"note {key} is damaged ({exc!r})") from exc
