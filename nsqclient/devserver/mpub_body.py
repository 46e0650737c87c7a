"""The two forms of /mpub's body: one message per line, and MPUB's binary form.

All or nothing: a body that is wrong somewhere gives no message at all.
"""

from __future__ import annotations

import struct

from nsqclient.devserver.http_message import BodyError, BodyReader
from nsqclient.devserver.http_router import HTTPError

_size = struct.Struct(">i")


def read_lines(body: BodyReader, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """Return the lines, empty ones left out.

    Raises:
        HTTPError: 413 MSG_TOO_BIG or BODY_TOO_BIG, whichever is met first; 500 for a broken body.
    """
    try:
        data = body.read(max_body_size + 1)
    except BodyError:
        raise HTTPError(500, "INTERNAL_ERROR") from None
    messages = []
    read = 0
    for line in data.split(b"\n"):
        read += len(line) + 1
        if read > max_body_size:
            # The last line may end with the body, without a newline of its own.
            if len(data) > max_body_size:
                raise HTTPError(413, "BODY_TOO_BIG")
        if len(line) > max_msg_size:
            raise HTTPError(413, "MSG_TOO_BIG")
        if line:
            messages.append(line)
    return messages


def read_binary(body: BodyReader, max_msg_size: int, max_body_size: int) -> list[bytes]:
    """Return the messages of ``[4 B count]`` and ``[4 B size][message]`` for each.

    What follows the last message is not looked at.

    Raises:
        HTTPError: 413, BAD_BODY for the count, BAD_MESSAGE for what follows.
    """
    count = _read_size(body, "BAD_BODY")
    # The most that fit: 4 bytes of count, then 4 bytes of size and 1 of message for each.
    if not 0 < count <= (max_body_size - 4) // 5:
        raise HTTPError(413, "BAD_BODY")
    messages = []
    for _ in range(count):
        size = _read_size(body, "BAD_MESSAGE")
        if not 0 < size <= max_msg_size:
            raise HTTPError(413, "BAD_MESSAGE")
        messages.append(_read(body, size, "BAD_MESSAGE"))
    return messages


def _read_size(body: BodyReader, code: str) -> int:
    size: int = _size.unpack(_read(body, _size.size, code))[0]
    return size


def _read(body: BodyReader, size: int, code: str) -> bytes:
    try:
        data = body.read(size)
    except BodyError:
        data = b""
    if len(data) < size:
        raise HTTPError(413, code)
    return data
