"""URLs of endpoints, from addresses as users write them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit, urlunsplit

from nsqclient.errors import ConfigError, without_password
from nsqclient.runtime.transport import parse_address


def split_address(address: object, what: str) -> SplitResult:
    """Read ``host:port`` or an ``http(s)://`` URL.

    Raises:
        ConfigError: it is neither; the message begins with ``what``.
    """
    if not isinstance(address, str):
        raise ConfigError(f"{what} must be a string, not {address!r}")
    if "://" not in address:
        parse_address(address, what)
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
