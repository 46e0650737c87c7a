"""The flags for TLS towards HTTP servers, with the names that they have in nsqadmin."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from nsqclient.cli.goflags import BOOL, STRING, CommandLineError
from nsqclient.cli.tools import SECRET_FILE, ToolFlags, read_key_password
from nsqclient.runtime.tls import client_context

_CA, _CERT, _KEY, _PASSWORD, _INSECURE = (
    f"http-client-tls-{name}"
    for name in ("root-ca-file", "cert", "key", "key-password-file", "insecure-skip-verify"))


def add_tls_flags(flags: ToolFlags) -> None:
    """Add the flags to the current group."""
    flags.add(_CA, STRING, "", "PEM file of the authorities that https servers are checked with"
              "\n      (default: those that the package requests brings)")
    flags.add(_CERT, STRING, "", "PEM file of the client certificate for https")
    flags.add(_KEY, STRING, "", "PEM file of its key")
    flags.add(_PASSWORD, SECRET_FILE, "", "file with the password of that key, if it is encrypted"
              " (or set $NSQCLIENT_TLS_KEY_PASSWORD)")
    flags.add(_INSECURE, BOOL, False, "do not check https servers")


def read_context(values: Mapping[str, Any]) -> ssl.SSLContext | None:
    """Return what the flags say; None where they say nothing.

    Raises:
        CommandLineError: a certificate without key, or flags that exclude each other.
        TLSError: a file cannot be used; says which.
    """
    if bool(values[_CERT]) != bool(values[_KEY]):
        raise CommandLineError(f"--{_CERT} and --{_KEY} go together")
    if values[_CA] and values[_INSECURE]:
        raise CommandLineError(f"use --{_CA} or --{_INSECURE} not both")
    if not any(values[name] for name in (_CA, _CERT, _INSECURE)):
        return None
    return client_context(
        ca_file=values[_CA] or DEFAULT_CA_BUNDLE_PATH, cert=values[_CERT], key=values[_KEY],
        key_password=read_key_password(values, _PASSWORD) if values[_KEY] else "",
        verify=not values[_INSECURE],
    )
