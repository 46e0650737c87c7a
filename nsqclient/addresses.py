"""Checks the lists of addresses that consumers and producers are given."""

from __future__ import annotations

from collections.abc import Iterable

from nsqclient.discovery import lookup_url
from nsqclient.errors import ConfigError
from nsqclient.runtime.transport import parse_address, pieces_of


def check_addresses(
    nsqds: Iterable[str], lookupds: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Check the two lists of addresses; duplicates are dropped.

    Raises:
        ConfigError: both are empty, one is a plain string, or an address is malformed.
    """
    for value, name in ((nsqds, "nsqd_tcp_addresses"), (lookupds, "lookupd_http_addresses")):
        if isinstance(value, (str, bytes)):
            text = value if isinstance(value, str) else value.decode(errors="replace")
            raise ConfigError(f"{name} must be a list of addresses: write {pieces_of(text)}")
        if not isinstance(value, Iterable):
            raise ConfigError(f"{name} must be a list of addresses, not {value!r}")
    nsqds, lookupds = list(nsqds), list(lookupds)
    if not nsqds and not lookupds:
        raise ConfigError("give nsqd_tcp_addresses or lookupd_http_addresses")
    for address in nsqds:
        parse_address(address, "nsqd_tcp_address")
    for address in lookupds:
        lookup_url(address)
    return list(dict.fromkeys(nsqds)), list(dict.fromkeys(lookupds))
