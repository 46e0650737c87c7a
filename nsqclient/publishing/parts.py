"""Cuts a list of bodies into parts that nsqd takes as one MPUB each. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nsqclient.protocol.commands import mpub_size

#: Most messages in one MPUB; nsqd's own limit follows from its body size.
MAX_PER_MPUB = 10_000


def split(bodies: list[bytes], max_body_size: int) -> Iterator[list[bytes]]:
    """Yield the bodies in parts, in order; one that is too large alone is a part of its own."""
    # In one part: nearly always, and without a loop in Python.
    if 0 < len(bodies) <= MAX_PER_MPUB and mpub_size(bodies) <= max_body_size:
        yield bodies
        return
    part: list[bytes] = []
    size = 4
    for body in bodies:
        if part and (size + 4 + len(body) > max_body_size or len(part) >= MAX_PER_MPUB):
            yield part
            part, size = [], 4
        part.append(body)
        size += 4 + len(body)
    if part:
        yield part
