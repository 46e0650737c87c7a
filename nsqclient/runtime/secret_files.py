"""Reads a secret from a file; knows nothing of NSQ."""

from __future__ import annotations

#: Far longer than any secret; a file that never ends must not fill the memory.
_MAX_SIZE = 64 * 1024


def read_secret(path: str) -> str:
    """Return what a file holds, without newlines at its end.

    Bytes that are no UTF-8 are kept as Python keeps those of a command line.

    Raises:
        ValueError: it cannot be read, is empty, or too long; the message says why, and no content.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_SIZE + 1)
    except OSError as exc:
        raise ValueError(f"cannot read {path!r}: {exc.strerror or exc}") from None
    except ValueError:  # a NUL in the name
        raise ValueError(f"cannot read {path!r}: not a file name") from None
    if len(content) > _MAX_SIZE:
        raise ValueError(f"{path!r} is too long for a secret")
    content = content.rstrip(b"\r\n")
    if not content:
        raise ValueError(f"{path!r} is empty")
    return content.decode("utf-8", "surrogateescape")
