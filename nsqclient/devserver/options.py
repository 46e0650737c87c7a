"""The options of the embedded nsqd: nsqd's flags with nsqd's defaults, durations in seconds."""

from __future__ import annotations

import hashlib
import socket
import zlib
from dataclasses import dataclass, field

from nsqclient.devserver.queues import QueueLimits
from nsqclient.protocol.server_identify import ServerLimits


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
    max_deflate_level: int = 6
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
        )

    def queue_limits(self) -> QueueLimits:
        """Return what the broker checks."""
        return QueueLimits(
            self.mem_queue_size, self.max_msg_timeout, self.max_channel_consumers
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
