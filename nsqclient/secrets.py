"""Which options hold a secret, and where else than in the options they may be given.

Apart from ``config``, whose table takes a while to load: a command that has no use for the other
options only needs these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Options that hold a secret; beside each one, NAME_file says where to read it.
SECRETS = ("tls_key_password", "auth_secret")

#: Far longer than any secret; a file that never ends must not fill the memory.
_MAX_SECRET_SIZE = 64 * 1024


def read_secret(path: str) -> str:
    """Return what a file holds, without newlines at its end.

    Bytes that are no UTF-8 are kept as Python keeps those of a command line.

    Raises:
        ValueError: it cannot be read, is empty, or too long; the message says why, and no content.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_SECRET_SIZE + 1)
    except OSError as exc:
        raise ValueError(f"cannot read {path!r}: {exc.strerror or exc}") from None
    except ValueError:  # a NUL in the name
        raise ValueError(f"cannot read {path!r}: not a file name") from None
    if len(content) > _MAX_SECRET_SIZE:
        raise ValueError(f"{path!r} is too long for a secret")
    content = content.rstrip(b"\r\n")
    if not content:
        raise ValueError(f"{path!r} is empty")
    return content.decode("utf-8", "surrogateescape")


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options that environment variables such as ``NSQCLIENT_AUTH_SECRET`` give.

    For commands and frameworks: what is on a command line is readable by every user of a machine.
    """
    names = [f"{name}{suffix}" for name in SECRETS for suffix in ("", "_file")]
    values = {name: environ.get(f"NSQCLIENT_{name.upper()}", "") for name in names}
    return {name: value for name, value in values.items() if value}


def with_secrets(options: Mapping[str, Any], *others: Mapping[str, str]) -> dict[str, Any]:
    """Add the secrets that ``options`` do not give, each from the first of ``others`` with it."""
    added = dict(options)
    given = {key.strip().lower().replace("-", "_") for key in options}
    for name in SECRETS:
        if name == "tls_key_password" and "tls_key" not in given:
            continue
        both = {name, f"{name}_file"}
        for source in ({} if both & given else other for other in others):
            found = {key: value for key, value in source.items() if key in both}
            if found:
                added |= found
                break
    return added
