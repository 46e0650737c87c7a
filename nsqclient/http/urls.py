"""URLs of endpoints, from addresses as users write them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from nsqclient.display import without_password
from nsqclient.errors import ConfigError
from nsqclient.runtime.transport import parse_address


#: A name or an IP address, and nothing that a URL would take for more than a host.
_HOST = re.compile(r"[\w.-]{1,255}|[0-9a-fA-F:.]{2,45}(%[\w.-]{1,64})?")


def is_host(text: str) -> bool:
    """Tell whether text can be the host of an address; it may not exist."""
    return _HOST.fullmatch(text) is not None


def split_address(address: object, what: str) -> SplitResult:
    """Read ``host:port`` or an ``http(s)://`` URL.

    Raises:
        ConfigError: it is neither; the message begins with ``what``.
    """
    if not isinstance(address, str):
        raise ConfigError(f"{what} must be a string, not {address!r}")
    if "://" not in address or "," in address.partition("://")[2].partition("/")[0]:
        example = "nsqlookupd:4161" if what.startswith("lookupd") else "nsqd:4151"
        parse_address(address, what, example=example)
        address = f"http://{address}"
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of brackets, or of a port that is none
        usable = False
    if not usable:
        shown = without_password(address)
        raise ConfigError(f"{what} {shown!r}: give host:port or http://host:port")
    return parts


def nsqd_url(address: object, endpoint: str) -> str:
    """Return the URL of an endpoint of nsqd. A path in the address is a prefix.

    Raises:
        ConfigError: the address is none.
    """
    parts = split_address(address, "nsqd_http_address")
    return _join(parts, parts.path.rstrip("/") + f"/{endpoint}")


def lookup_url(address: object, endpoint: str = "lookup") -> str:
    """Return the URL of an endpoint of nsqlookupd.

    A path in the address stands for ``/lookup``, as with go-nsq.

    Raises:
        ConfigError: the address is none.
    """
    parts = split_address(address, "lookupd_http_address")
    path = parts.path if parts.path not in ("", "/") else "/lookup"
    if endpoint != "lookup":
        path = path.rstrip("/").removesuffix("/lookup") + f"/{endpoint}"
    return _join(parts, path)


def _join(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
