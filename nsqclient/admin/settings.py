"""``AdminSettings``: where the admin page looks, and what it may do. Checked when it is made."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from nsqclient.admin.rewriting import Rewriter
from nsqclient.config import Config
from nsqclient.display import without_password
from nsqclient.errors import ConfigError
from nsqclient.http.urls import split_address


@dataclass(frozen=True)
class AdminSettings:
    """What an admin page is told at its start. Durations are seconds.

    Raises:
        ConfigError: a value cannot be; the text says what to do.
    """

    #: nsqlookupds that know the nsqds; or else:
    lookupd_http_addresses: tuple[str, ...] = ()
    #: nsqds; they are asked at exactly these addresses.
    nsqd_http_addresses: tuple[str, ...] = ()
    #: The path under which a proxy shows the page, such as ``/nsq``.
    base_path: str = ""
    #: Everybody who reaches the page may act.
    allow_actions: bool = False
    #: Only these may act; who asks is in ``acl_http_header``, which a proxy must set.
    admin_users: tuple[str, ...] = ()
    acl_http_header: str = "X-Forwarded-User"
    #: Bodies of messages may be looked at.
    allow_peek: bool = False
    #: Names by which browsers may call the page (the Host header); empty: any.
    allowed_hosts: tuple[str, ...] = ()
    #: URL that is told of each action.
    notification_http_endpoint: str = ""
    #: (address that an nsqd announces, address where it is found from here)
    rewrite_addresses: tuple[tuple[str, str], ...] = ()
    connect_timeout: float = 2.0
    request_timeout: float = 5.0
    #: How often an open page is refreshed; less often where that would cost too much.
    refresh_interval: float = 2.0
    #: Who may read and set ``/config``, as a network; empty: everybody.
    allow_config_from_cidr: str = "127.0.0.1/8"
    #: TLS of the HTTP requests: the ``tls_*`` options, with ``tls_v1``.
    http_config: Config = field(default_factory=Config)
    #: Options of the consumer that peeks.
    consumer_config: Config = field(default_factory=Config)

    def __post_init__(self) -> None:
        """Check it all."""
        if not self.lookupd_http_addresses and not self.nsqd_http_addresses:
            raise ConfigError("--lookupd-http-address or --nsqd-http-address required")
        if self.lookupd_http_addresses and self.nsqd_http_addresses:
            raise ConfigError("use --lookupd-http-address or --nsqd-http-address, not both")
        for address in self.lookupd_http_addresses:
            split_address(address, "lookupd_http_address")
        for address in self.nsqd_http_addresses:
            split_address(address, "nsqd_http_address")
        if self.allow_actions and self.admin_users:
            raise ConfigError("use --allow-actions (everybody may act) or --admin-user (these"
                              " may), not both")
        object.__setattr__(self, "base_path", _checked_path(self.base_path))
        for host in self.allowed_hosts:
            _check_allowed_host(host)
        Rewriter(self.rewrite_addresses)
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
        raise ConfigError(f"base_path {path!r} must not hold dots alone")
    return "/" + path
