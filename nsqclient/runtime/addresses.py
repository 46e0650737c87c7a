"""Addresses as text: ``host:port``. Looks up no names. Pure."""

from __future__ import annotations

import ipaddress
import re

from nsqclient.display import masked_address
from nsqclient.errors import ConfigError

#: A name or an IP address. Nothing in it has a meaning of its own in a URL.
_HOST = re.compile(r"[\w.-]{1,255}|[0-9a-fA-F:.]{2,45}(%[\w.-]{1,64})?")
#: A part of a host name.
_LABEL = re.compile(r"\w([\w-]{0,61}\w)?")


def is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


def parse_address(
    address: object, what: str = "address", *, example: str = "nsqd:4150", lowest_port: int = 1
) -> tuple[str, int]:
    """Split ``"host:port"`` or ``"[ipv6]:port"``. Raises ConfigError, without a password.

    Args:
        lowest_port: 0 if port 0 (any) is allowed.
    """
    if not isinstance(address, str):
        raise ConfigError(f"{what} must be a string 'host:port', not {address!r}")
    if "," in address:
        raise _no_address(
            what, address,
            f" is a list with commas: give each address separately: {pieces_of(address)}")
    if "://" in address:
        raise _no_address(what, address, " is a URL: give host:port, as in '127.0.0.1:4150'")
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise _no_address(what, address, f" has no port: give host:port, as in {example!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not host:
            raise _no_address(what, address, " has no host")
    elif ":" in host:
        raise _no_address(what, address, ": write an IPv6 address as [host]:port")
    if not is_host(host):
        raise _no_address(what, address, ": the part before the port is not a host name")
    number = parse_uint(port, 5)
    if number is None or not lowest_port <= number < 65536:
        raise _no_address(
            what, address, f": the port must be a number from {lowest_port} to 65535")
    return host, number


def parse_listen_address(text: str) -> tuple[str, int]:
    """Split a listening address; empty host: all, port 0: any. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    has_brackets = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if has_brackets else host
    number = parse_uint(port, 5)
    if (not colon or number is None or number > 65535 or host and not is_host(bare)
            or has_brackets != (":" in bare)):
        raise ConfigError(f"{text!r} is not an address: give <addr>:<port>, or :<port> for all"
                          " addresses")
    return bare, number


def pieces_of(text: str) -> list[str]:
    """Split a list with commas for an error message, without passwords."""
    return [piece.strip() for piece in masked_address(text).split(",")]


def parse_local_address(text: str) -> tuple[str, int]:
    """Split the ``host`` or ``host:port`` to connect from; port 0: any. Raises ConfigError."""
    host, port = text, 0
    if ":" in text or not re.fullmatch(r"[\w.-]+", text):
        host, port = parse_address(text, "local_addr", example="127.0.0.1:0", lowest_port=0)
    if (re.fullmatch(r"[\d.]+", host) or ":" in host) and ip_version(host) == 0:
        raise _no_address("local_addr", text, ": its host is not an IP address")
    if ":" not in host and not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise _no_address("local_addr", text, ": its host is not a host name")
    return host, port


def ip_version(host: str) -> int:
    """Return 4, 6, or 0 for a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _no_address(what: str, address: str, reason: str) -> ConfigError:
    return ConfigError(f"{what} {masked_address(address)!r}{reason}")


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_uint(text: str, most: int) -> int | None:
    """Return the number, or None if text is not at most ``most`` ASCII digits."""
    return int(text) if len(text) <= most and text.isascii() and text.isdigit() else None
