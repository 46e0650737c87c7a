"""The types of the options as keyword arguments, for type checkers.

The table in ``config`` has the options; a test compares the two.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from typing import TypedDict, Union

from nsqclient.runtime.deadline import Duration

#: A backoff strategy: (attempt, multiplier in seconds, random source) -> seconds.
BackoffStrategy = Callable[[int, float, random.Random], float]


class SharedOptions(TypedDict, total=False):
    """What ``Config(...)`` and ``@nsqclient.handler`` take by name."""

    dial_timeout: Duration
    read_timeout: Duration
    write_timeout: Duration
    local_addr: str
    lookupd_poll_interval: Duration
    lookupd_poll_jitter: float
    lookupd_poll_timeout: Duration
    skip_lookupd_authorization: bool
    lookupd_authorized_hosts: str
    max_attempts: int
    drain_patience: Duration
    default_requeue_delay: Duration
    max_requeue_delay: Duration
    ordered_retry_delay: Duration
    ordered_max_retry_delay: Duration
    backoff_strategy: Union[str, BackoffStrategy]
    max_backoff_duration: Duration
    backoff_multiplier: Duration
    low_rdy_idle_timeout: Duration
    low_rdy_timeout: Duration
    rdy_redistribute_interval: Duration
    rdy_share_of_timeout: float
    client_id: str
    hostname: str
    user_agent: str
    heartbeat_interval: Duration
    sample_rate: int
    output_buffer_size: int
    output_buffer_timeout: Duration
    msg_timeout: Duration
    topology_region: str
    topology_zone: str
    tls_v1: bool
    tls_root_ca_file: str
    tls_cert: str
    tls_key: str
    tls_key_password: str
    tls_key_password_file: str
    tls_insecure_skip_verify: bool
    tls_min_version: str
    tls_server_name: str
    tls_config: Union[ssl.SSLContext, None]
    deflate: bool
    deflate_level: int
    snappy: bool
    auth_secret: str
    auth_secret_file: str
    max_msg_size: int
    max_queued_bytes: int
    nsqd_max_msg_size: int
    nsqd_max_body_size: int
    nsqd_max_req_timeout: Duration
    publish_timeout: Duration
    max_connections: int
    idle_timeout: Duration
    partition_try_timeout: Duration
    max_reconnect_delay: Duration


class ConfigOptions(SharedOptions, total=False):
    """What ``Config(...)`` and ``Config.replace`` take by name."""

    max_in_flight: int
