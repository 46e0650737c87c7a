"""Secrets in options, files and environment variables.

Not in ``config``, which takes longer to import than most commands need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Options that hold a secret. The option NAME_file names a file with the secret.
SECRETS = ("tls_key_password", "auth_secret")

#: Bytes. Protects against a file without an end.
_MAX_SECRET_SIZE = 64 * 1024


def read_secret(path: str) -> str:
    """Return the content of a file without newlines at its end, invalid UTF-8 as surrogates.

    Raises:
        ValueError: the file cannot be read, is empty or too long.
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
    """Return the options in environment variables such as ``NSQCLIENT_AUTH_SECRET``.

    Every user of a machine can read the command line of a process.
    """
    names = [f"{name}{suffix}" for name in SECRETS for suffix in ("", "_file")]
    values = {name: environ.get(f"NSQCLIENT_{name.upper()}", "") for name in names}
    return {name: value for name, value in values.items() if value}


def with_secrets(options: Mapping[str, Any], *others: Mapping[str, str]) -> dict[str, Any]:
    """Return ``options`` with each missing secret from the first of ``others`` that has it."""
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
