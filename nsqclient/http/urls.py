"""URLs of endpoints, from addresses as users write them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from nsqclient.display import masked_address
from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import parse_address


def split_address(address: object, what: str) -> SplitResult:
    """Read ``host:port`` or an ``http(s)://`` URL.

    Raises:
        ConfigError: the text begins with ``what``.
    """
    if not isinstance(address, str):
        raise ConfigError(f"{what} must be a string, not {address!r}")
    if "://" not in address or "," in address.split("://", 1)[1].split("/")[0]:
        example = "nsqlookupd:4161" if what.startswith("lookupd") else "nsqd:4151"
        parse_address(address, what, example=example)
        address = f"http://{address}"
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # invalid brackets, or an invalid port
        usable = False
    shown = masked_address(address)
    # urlsplit drops tabs and line ends.
    if not usable or re.search(r"\s", address) or not address.isprintable():
        raise ConfigError(f"{what} {shown!r}: give host:port or http://host:port{_quote(address)}")
    if "@" in parts.path + parts.query + parts.fragment:  # a part of the password
        raise ConfigError(f"{what} {shown!r}: an '@' stands behind the host{_quote(address)}")
    return parts


def _quote(address: str) -> str:
    return "; in a user name or password write / ? # @ and blanks as %XX" if "@" in address else ""


def nsqd_url(address: object, endpoint: str) -> str:
    """Return the URL of an endpoint of nsqd, below a path in the address. Raises ConfigError."""
    parts = split_address(address, "nsqd_http_address")
    return _join(parts, parts.path.rstrip("/") + f"/{endpoint}")


def lookup_url(address: object, endpoint: str = "lookup") -> str:
    """Return the URL of an endpoint of nsqlookupd. Raises ConfigError.

    A path in the address replaces ``/lookup``, as with go-nsq.
    """
    parts = split_address(address, "lookupd_http_address")
    path = parts.path.rstrip("/") or "/lookup"
    if endpoint != "lookup":
        path = path.removesuffix("/lookup") + f"/{endpoint}"
    return _join(parts, path)


def _join(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
