"""``AdminSettings``: the servers of the admin page and its permissions, checked when created."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nsqclient.config import Config
from nsqclient.display import without_password
from nsqclient.errors import ConfigError
from nsqclient.http.urls import split_address
from nsqclient.runtime.addresses import format_address, parse_address


class AddressMap:
    """Maps the addresses that nsqds announce to addresses that are reachable from here.

    Args:
        rules: pairs (from, to). In "from", ``host:port`` matches only that port, and ``host``
            matches every port. If "to" has no port, the announced port is kept.

    Raises:
        ConfigError: a rule is empty, or its address is invalid.
    """

    def __init__(self, rules: Iterable[tuple[str, str]]) -> None:
        self._rules: dict[str, str] = {}
        for source, target in rules:
            if not source or not target:
                raise ConfigError(
                    f"rewrite_address {source!r}={target!r}: give FROM=TO, each host or host:port"
                )
            for text in (source, target):
                if _has_port(text):
                    parse_address(text, "rewrite_address")
            self._rules[source.lower()] = target

    def __call__(self, host: str, port: int) -> str:
        address = format_address(host, port)
        target = self._rules.get(address.lower(), self._rules.get(host.lower()))
        if target is None:
            return address
        return target if _has_port(target) else format_address(target, port)


def _has_port(text: str) -> bool:
    # An IPv6 address without brackets has colons and no port.
    return text.startswith("[") or text.count(":") == 1


def parse_rule(text: str) -> tuple[str, str]:
    """Read ``FROM=TO``. Raises ValueError."""
    source, equals, target = text.partition("=")
    if not equals or not source.strip() or not target.strip():
        raise ValueError(f"{text!r}: give FROM=TO, such as 172.17.0.2:4151=127.0.0.1:14151")
    return source.strip(), target.strip()


@dataclass(frozen=True)
class AdminSettings:
    """The settings of an admin page. Durations are seconds. Raises ConfigError."""

    #: Give either nsqlookupds, which list the nsqds, or nsqds, which are requested directly.
    lookupd_http_addresses: tuple[str, ...] = ()
    nsqd_http_addresses: tuple[str, ...] = ()
    #: The path under which a proxy shows the page, such as ``/nsq``.
    base_path: str = ""
    allow_actions: bool = False
    #: Only these users may act; a proxy must set ``acl_http_header`` to the user.
    admin_users: tuple[str, ...] = ()
    acl_http_header: str = "X-Forwarded-User"
    allow_peek: bool = False
    #: Host names by which browsers may call the page; empty: any.
    allowed_hosts: tuple[str, ...] = ()
    notification_http_endpoint: str = ""
    rewrite_addresses: tuple[tuple[str, str], ...] = ()
    connect_timeout: float = 2.0
    request_timeout: float = 5.0
    refresh_interval: float = 2.0
    #: The network that may read and set ``/config``; empty: every network.
    allow_config_from_cidr: str = "127.0.0.1/8"
    #: The ``tls_*`` options for HTTPS requests. They need ``tls_v1``.
    http_config: Config = field(default_factory=Config)
    #: Options of the consumers that peek at messages.
    consumer_config: Config = field(default_factory=Config)

    def __post_init__(self) -> None:
        if not self.lookupd_http_addresses and not self.nsqd_http_addresses:
            raise ConfigError("--lookupd-http-address or --nsqd-http-address required")
        if self.lookupd_http_addresses and self.nsqd_http_addresses:
            raise ConfigError("use --lookupd-http-address or --nsqd-http-address, not both")
        for address in self.lookupd_http_addresses:
            split_address(address, "lookupd_http_address")
        for address in self.nsqd_http_addresses:
            split_address(address, "nsqd_http_address")
        if self.allow_actions and self.admin_users:
            raise ConfigError("use --allow-actions (every user may act) or --admin-user (these"
                              " users may), not both")
        object.__setattr__(self, "base_path", _checked_path(self.base_path))
        for host in self.allowed_hosts:
            _check_allowed_host(host)
        AddressMap(self.rewrite_addresses)
        if self.notification_http_endpoint:
            split_address(self.notification_http_endpoint, "notification_http_endpoint")
        if self.allow_config_from_cidr:
            try:
                ipaddress.ip_network(self.allow_config_from_cidr, strict=False)
            except ValueError as exc:
                raise ConfigError(f"allow_config_from_cidr: {exc}") from None
        for name in ("connect_timeout", "request_timeout", "refresh_interval"):
            if not 0 < getattr(self, name) <= 600:
                raise ConfigError(f"{name} must be above 0 and at most 600 s")


def _check_allowed_host(host: str) -> None:
    if re.fullmatch(r"[a-zA-Z0-9._-]{1,255}", host):
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(
            f"--allowed-host {without_password(host)!r} can never match: give a host name or an IP"
            " address alone, as browsers send it, such as nsq.example.com or ::1; without scheme,"
            " port, brackets or wildcard"
        ) from None


def _checked_path(path: str) -> str:
    path = path.strip("/")
    if not path:
        return ""
    parts = path.split("/")
    if not all(part and all(c.isalnum() or c in "-_.~" for c in part) for part in parts):
        raise ConfigError(f"base_path {path!r}: give a path such as /nsq, of letters and digits")
    if any(part in (".", "..") for part in parts):
        raise ConfigError(f"base_path {path!r} must not contain . or .. as a part")
    return "/" + path
