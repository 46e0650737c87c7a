"""The options of the embedded nsqd: nsqd's flags with nsqd's defaults, durations in seconds."""

from __future__ import annotations

import hashlib
import socket
import ssl
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from nsqclient.devserver.queues import QueueLimits
from nsqclient.errors import ConfigError
from nsqclient.protocol.server_identify import ServerLimits
from nsqclient.runtime.tls import VERSIONS, server_context


class TLSPolicy(IntEnum):
    """nsqd's numbers for --tls-required."""

    NOT_REQUIRED = 0
    REQUIRED_EXCEPT_HTTP = 1
    REQUIRED = 2


def default_node_id() -> int:
    """Return the node id nsqd would choose by itself: a number from 0 to 1023 by host name."""
    digest = hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % 1024


@dataclass(frozen=True)
class NsqdOptions:
    """What one nsqd was started with. Names are nsqd's flags with underscores."""

    node_id: int = field(default_factory=default_node_id)
    broadcast_address: str = "127.0.0.1"
    data_path: str | None = None
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
    #: Not a flag of nsqd's: of a key that is encrypted.
    tls_key_password: str = field(default="", repr=False)
    tls_root_ca_file: str = ""
    tls_client_auth_policy: str = ""
    tls_required: bool | str = False
    tls_min_version: str = "tls1.0"
    auth_http_addresses: Sequence[str] = ()
    #: Not a flag: timers look only at multiples of this many seconds, as nsqd's scan does.
    scan_lag: float = 0.0

    def server_limits(self) -> ServerLimits:
        """Return what the protocol core checks."""
        return ServerLimits(
            max_msg_size=self.max_msg_size,
            max_body_size=self.max_body_size,
            max_rdy_count=self.max_rdy_count,
            max_req_timeout=_ms(self.max_req_timeout),
            msg_timeout=_ms(self.msg_timeout),
            max_msg_timeout=_ms(self.max_msg_timeout),
            heartbeat_interval=_ms(self.client_timeout / 2),
            max_heartbeat_interval=_ms(self.max_heartbeat_interval),
            max_output_buffer_size=self.max_output_buffer_size,
            output_buffer_timeout=_ms(self.output_buffer_timeout),
            min_output_buffer_timeout=_ms(self.min_output_buffer_timeout),
            max_output_buffer_timeout=_ms(self.max_output_buffer_timeout),
            max_deflate_level=self.max_deflate_level,
            tls=self.has_certificate,
            tls_required=self.tls_policy != TLSPolicy.NOT_REQUIRED,
            deflate=self.deflate,
            snappy=self.snappy,
            auth_required=bool(self.auth_http_addresses),
        )

    @property
    def has_certificate(self) -> bool:
        """Whether clients may ask for TLS."""
        return bool(self.tls_cert or self.tls_key)

    @property
    def tls_policy(self) -> TLSPolicy:
        """Who must use TLS. A policy for clients' certificates makes it everybody."""
        if self.tls_required == "tcp-https":
            return TLSPolicy.REQUIRED_EXCEPT_HTTP
        if self.tls_required or self.tls_client_auth_policy:
            return TLSPolicy.REQUIRED
        return TLSPolicy.NOT_REQUIRED

    def tls_context(self) -> ssl.SSLContext | None:
        """Build the server's TLS context from the files; None without a certificate.

        Raises:
            ConfigError: TLS is required and there is no certificate; a name is unknown.
            TLSError: a file cannot be used.
        """
        if not self.has_certificate:
            if self.tls_policy is not TLSPolicy.NOT_REQUIRED:
                raise ConfigError(
                    "cannot require TLS client connections without TLS key and cert"
                )
            return None
        if self.tls_min_version not in VERSIONS:
            raise ConfigError(f"unknown tls_min_version {self.tls_min_version!r}")
        return server_context(
            cert=self.tls_cert,
            key=self.tls_key,
            key_password=self.tls_key_password,
            ca_file=self.tls_root_ca_file,
            # Python cannot demand a certificate without verifying it.
            verify_clients=self.tls_client_auth_policy in ("require", "require-verify"),
            min_version=self.tls_min_version,
        )

    def queue_limits(self) -> QueueLimits:
        """Return what the broker checks."""
        return QueueLimits(
            self.mem_queue_size, self.max_msg_timeout, self.max_channel_consumers
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
