"""What goes through byte layers in tests, and how it is cut."""

from __future__ import annotations

import random

TEXT = b"a frame, and another frame, and a frame again. " * 40
NOISE = random.Random(5).randbytes(3000)


def decoded(layer, *chunks):
    """What a layer makes of chunks, together."""
    return b"".join(piece for chunk in chunks for piece in layer.decode(chunk))


def bytes_of(data):
    """The bytes one by one."""
    return [data[n:n + 1] for n in range(len(data))]
