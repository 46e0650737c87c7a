"""The options of the embedded nsqd: nsqd's flags."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, Field, dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from nsqclient.devserver.protocol.commands import ServerLimits
from nsqclient.devserver.queues import QueueLimits
from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    import ssl


class TLSPolicy(IntEnum):
    """nsqd's numbers for --tls-required."""

    NOT_REQUIRED = 0
    REQUIRED_EXCEPT_HTTP = 1
    REQUIRED = 2


def default_node_id() -> int:
    return zlib.crc32(socket.gethostname().encode()) % 1024


#: Values of --tls-min-version.
TLS_VERSIONS = ("tls1.2", "tls1.3")
#: Clients cannot connect to these; the host's name replaces them.
ANY_HOST = ("", "0.0.0.0", "::")  # nosec B104 # compared with, never bound to


@dataclass(frozen=True)
class NsqdOptions:
    """The options of one nsqd, as :class:`~nsqclient.devserver.Nsqd` takes them.

    Raises:
        ConfigError: a value is invalid for nsqd, too.
    """

    host: str = "127.0.0.1"
    tcp_port: int = 0
    http_port: int | None = 0
    _: KW_ONLY
    data_path: str | None = None
    lookupd_tcp_addresses: Sequence[str] = ()
    http_host: str | None = None
    https_port: int | None = 0
    https_host: str | None = None
    broadcast_address: str | None = None
    broadcast_tcp_port: int = 0
    broadcast_http_port: int = 0
    node_id: int = field(default_factory=default_node_id)
    mem_queue_size: int = 10_000
    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    msg_timeout: float = 60.0
    max_msg_timeout: float = 900.0
    max_req_timeout: float = 3600.0
    client_timeout: float = 60.0
    max_heartbeat_interval: float = 60.0
    max_rdy_count: int = 2500
    max_output_buffer_size: int = 64 * 1024
    max_output_buffer_timeout: float = 30.0
    min_output_buffer_timeout: float = 0.025
    output_buffer_timeout: float = 0.25
    max_channel_consumers: int = 0
    deflate: bool = True
    max_deflate_level: int = 6
    snappy: bool = True
    tls_cert: str = ""
    tls_key: str = ""
    tls_key_password: str = field(default="", repr=False)
    tls_root_ca_file: str = ""
    tls_client_auth_policy: str = ""
    tls_required: bool | str = False
    tls_min_version: str = "tls1.2"
    auth_http_addresses: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.node_id < 1024:
            raise ConfigError(f"node_id must be from 0 to 1023, not {self.node_id}")
        if not 1 <= self.max_deflate_level <= 9:
            raise ConfigError(
                f"max_deflate_level must be from 1 to 9, not {self.max_deflate_level}")
        if self.tls_min_version not in TLS_VERSIONS:
            raise ConfigError(
                f"unknown tls_min_version {self.tls_min_version!r}: give one of "
                + ", ".join(TLS_VERSIONS))
        if self.tls_client_auth_policy == "require":
            raise ConfigError("tls_client_auth_policy 'require' accepts any certificate, which this"
                              " nsqd cannot: use 'require-verify'")

    @property
    def announced_address(self) -> str:
        if self.broadcast_address is not None:
            return self.broadcast_address
        return socket.gethostname() if self.host in ANY_HOST else self.host

    def server_limits(self) -> ServerLimits:
        same = {
            each.name: _in_ms(self, each) for each in fields(self)
            if each.name in ServerLimits._fields
        }
        return ServerLimits(**same | {
            "heartbeat_interval": round(self.client_timeout / 2 * 1000),
            "tls": self.has_certificate,
            "tls_required": self.tls_policy != TLSPolicy.NOT_REQUIRED,
            "auth_required": bool(self.auth_http_addresses),
        })

    @property
    def has_certificate(self) -> bool:
        return bool(self.tls_cert or self.tls_key)

    @property
    def tls_policy(self) -> TLSPolicy:
        if self.tls_required == "tcp-https":
            return TLSPolicy.REQUIRED_EXCEPT_HTTP
        if self.tls_required or self.tls_client_auth_policy:
            return TLSPolicy.REQUIRED
        return TLSPolicy.NOT_REQUIRED

    def tls_context(self) -> ssl.SSLContext | None:
        """Build the TLS context; None without a certificate. Raises ConfigError, TLSError."""
        if self.tls_root_ca_file:
            from nsqclient.runtime.tls import client_context  # with OpenSSL: only when it is used

            # nsqd also reads it for its own requests, and does not start if it cannot.
            client_context(ca_file=self.tls_root_ca_file)
        if not self.has_certificate:
            if self.tls_policy is not TLSPolicy.NOT_REQUIRED:
                raise ConfigError(
                    "cannot require TLS client connections without TLS key and cert"
                )
            return None
        from nsqclient.runtime.tls import server_context

        return server_context(
            cert=self.tls_cert,
            key=self.tls_key,
            key_password=self.tls_key_password,
            ca_file=self.tls_root_ca_file,
            verify_clients=self.tls_client_auth_policy == "require-verify",
            min_version=self.tls_min_version,
        )

    def queue_limits(self) -> QueueLimits:
        return QueueLimits(
            self.mem_queue_size, self.max_msg_timeout, self.max_channel_consumers
        )


def _in_ms(options: NsqdOptions, option: Field[Any]) -> Any:
    """Return the value of an option; a duration as a whole number of ms."""
    value = getattr(options, option.name)
    return round(value * 1000) if option.type == "float" else value
