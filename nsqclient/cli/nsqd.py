"""``nsqclient nsqd`` and ``nsqlookupd``: the embedded servers, with the flags of the real ones.

Unlike the real ones they listen on 127.0.0.1 by default. Flags for missing features are accepted
with a warning. ``--partitioned`` runs a cluster in one process: the first nsqd and nsqlookupd use
the given ports, each further server a port two higher. All listen on the host of ``--tcp-address``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nsqclient.cli.command import Command
from nsqclient.cli.tool_flags import (
    SECRET_FILE, Server, ServerCommand, parse_listen_address, read_key_password,
)
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, PATH, STRING, STRINGS, FlagError, Kind, Parsed, choice,
)
from nsqclient.devserver.nsqd import Nsqd
from nsqclient.devserver.nsqlookupd import Nsqlookupd
from nsqclient.devserver.options import TLS_VERSIONS, NsqdOptions, default_node_id
from nsqclient.devserver.protocol.commands import version_line
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_uint

if TYPE_CHECKING:
    from nsqclient.devserver.partitioned.cluster import PartitionedCluster

PROGRAM = "nsqd"

_TOPIC_KINDS = ("ordered", "extended")
_MOST_PARTITIONS = 255


def _parse_tls_required(text: str) -> bool | str:
    if text.lower() == "tcp-https":
        return "tcp-https"
    value: bool = BOOL.parse(text)
    return value


def parse_topic(text: str) -> dict[str, Any]:
    """Read ``NAME:PARTITIONS[:ordered][:extended]``."""
    name, _, rest = text.partition(":")
    number, *kinds = rest.split(":")
    count = parse_uint(number, 9)
    good = is_valid_name(name) and set(kinds) <= set(_TOPIC_KINDS)
    if not good or count is None or not 1 <= count <= _MOST_PARTITIONS:
        raise FlagError(
            f"{text!r}: give NAME:PARTITIONS[:ordered][:extended], with 1 to {_MOST_PARTITIONS}"
            " partitions")
    return {"topic": name, "partitions": count, **{kind: kind in kinds for kind in _TOPIC_KINDS}}


TOPICS = Kind("value", parse_topic, is_list=True)
#: An empty value means the default, as in nsqd.
TLS_VERSION = choice(*TLS_VERSIONS, name="value")._replace(
    parse=lambda text: text.lower() or NsqdOptions().tls_min_version)
TLS_REQUIRED = Kind("=false|=tcp-https", _parse_tls_required, str, is_switch=True)

#: Flags that are options of :class:`Nsqd` under the same name, in groups: (flag, kind, help).
_OPTIONS = {
    "Announced to nsqlookupd": [
        ("broadcast-http-port", INT, "HTTP port that is registered with lookupd (default: the HTTP"
         " port that this nsqd listens on)"),
        ("broadcast-tcp-port", INT, "TCP port that is registered with lookupd (default: the TCP"
         " port that this nsqd listens on)"),
    ],
    "Messages and clients": [
        ("deflate", BOOL, "enable deflate feature negotiation (client compression)"),
        ("max-body-size", INT, "maximum size of a single command body"),
        ("max-channel-consumers", INT, "maximum channel consumers of this nsqd (0: unlimited)"),
        ("max-deflate-level", INT, "max deflate compression level a client can negotiate"),
        ("max-heartbeat-interval", DURATION, "maximum duration between client heartbeats"),
        ("max-msg-size", INT, "maximum size of a single message in bytes"),
        ("max-msg-timeout", DURATION, "maximum duration before a message will timeout"),
        ("max-output-buffer-size", INT, "maximum size in bytes of a client's output buffer"),
        ("max-output-buffer-timeout", DURATION, "maximum duration between flushes to a client"),
        ("max-rdy-count", INT, "maximum RDY count for a client"),
        ("max-req-timeout", DURATION, "maximum requeuing timeout for a message"),
        ("mem-queue-size", INT, "number of messages to keep in memory (per topic/channel)"),
        ("min-output-buffer-timeout", DURATION, "minimum duration between flushes to a client"),
        ("msg-timeout", DURATION, "default duration to wait before auto-requeing a message"),
        ("output-buffer-timeout", DURATION, "default duration between flushes to clients"),
        ("snappy", BOOL, "enable snappy feature negotiation (client compression)"),
    ],
    "TLS": [
        ("tls-cert", PATH, "path to certificate file"),
        ("tls-client-auth-policy", STRING, "client certificate policy (require-verify)"),
        ("tls-key", PATH, "path to key file"),
        ("tls-min-version", TLS_VERSION, "minimum TLS version acceptable (tls1.2 or tls1.3)"),
        ("tls-required", TLS_REQUIRED, "require TLS for client connections (true, false,"
         " tcp-https)"),
        ("tls-root-ca-file", PATH, "path to certificate authority file"),
    ],
}

_IGNORED = [
    ("e2e-processing-latency-percentile", STRING),
    ("e2e-processing-latency-window-time", DURATION),
    ("http-client-connect-timeout", DURATION),
    ("http-client-request-timeout", DURATION),
    ("max-bytes-per-file", INT), ("queue-scan-selection-count", INT),
    ("queue-scan-worker-pool-max", INT), ("statsd-address", STRING),
    ("statsd-exclude-ephemeral", BOOL), ("statsd-interval", DURATION),
    ("statsd-mem-stats", BOOL), ("statsd-prefix", STRING), ("statsd-udp-packet-size", INT),
    ("sync-every", INT), ("sync-timeout", DURATION), ("worker-id", BOOL),
]

#: Flags that a partitioned cluster does not have.
_NOT_PARTITIONED = {
    "auth-http-address", "broadcast-address", "data-path", "https-address", "lookupd-tcp-address",
    "node-id", "tls-key-password-file",
    *(name for options in _OPTIONS.values() for name, _, _ in options),
} - {"max-msg-timeout", "msg-timeout"}

_CONFIG_NAMES = {
    "node-id": "id",
    "lookupd-tcp-address": "nsqlookupd_tcp_addresses",
    "auth-http-address": "auth_http_addresses",
}


def build_command() -> Command:
    defaults = NsqdOptions()
    flags = ServerCommand(
        PROGRAM, _build, "Runs the embedded nsqd until a signal.", ignores_words=True,
        version=version_line(PROGRAM))
    flags.config_names = _CONFIG_NAMES
    flags.group("Addresses and data")
    flags.add("tcp-address", STRING, "127.0.0.1:4150",
              "<addr>:<port> to listen on for TCP clients")
    flags.add("http-address", STRING, "127.0.0.1:4151",
              "<addr>:<port> to listen on for HTTP clients")
    flags.add("https-address", STRING, "127.0.0.1:4152",
              "<addr>:<port> to listen on for HTTPS clients if --tls-cert or --tls-key is set;"
              " empty: no HTTPS")
    flags.add("broadcast-address", STRING, "",
              "address that is registered with lookupd (default: the listening address)")
    flags.add("lookupd-tcp-address", STRINGS, (),
              "lookupd TCP address (may be given multiple times)")
    flags.add("auth-http-address", STRINGS, (),
              "<addr>:<port> or a full url to query auth server (may be given multiple times)")
    flags.add("data-path", PATH, "",
              "directory in which to store messages (default: memory only)")
    flags.add("node-id", INT, default_node_id(),
              "unique part for message IDs, (int) in range [0,1024)")
    for title, options in _OPTIONS.items():
        flags.group(title)
        for name, kind, text in options:
            flags.add(name, kind, getattr(defaults, name.replace("-", "_")), text)
    flags.add("tls-key-password-file", SECRET_FILE, "", "path to a file with the password of an"
              " encrypted key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")
    _add_partitioned_flags(flags)
    flags.add_common()
    flags.add_ignored(_IGNORED)
    return flags


def _build(parsed: Parsed) -> Server:
    values = parsed.values
    if values["partitioned"]:
        return build_cluster(parsed)
    # An empty --tcp-address means all addresses and any port, as in Go.
    host, tcp_port = parse_listen_address(values["tcp-address"] or ":0", "tcp-address")
    http_host, http_port = _optional_address(values, "http-address")
    https_host, https_port = None, None
    if values["tls-cert"] or values["tls-key"]:
        https_host, https_port = _optional_address(values, "https-address")
    return Nsqd(
        host,
        tcp_port,
        http_port,
        data_path=values["data-path"] or None,
        lookupd_tcp_addresses=values["lookupd-tcp-address"],
        http_host=http_host,
        https_port=https_port,
        https_host=https_host,
        broadcast_address=values["broadcast-address"] or None,
        node_id=values["node-id"],
        auth_http_addresses=values["auth-http-address"],
        tls_key_password=(
            read_key_password(values, "tls-key-password-file") if values["tls-key"] else ""),
        **{name.replace("-", "_"): values[name]
           for options in _OPTIONS.values() for name, _, _ in options},
    )


def _optional_address(values: Mapping[str, Any], flag: str) -> tuple[str | None, int | None]:
    """Split the address of an optional port, which an empty address disables."""
    return parse_listen_address(values[flag], flag) if values[flag] else (None, None)


def _add_partitioned_flags(flags: Command) -> None:
    flags.group("Partitioned NSQ")
    flags.add("partitioned", BOOL, False,
              "run a cluster of partitioned NSQ (three nsqds, two nsqlookupds) instead of one nsqd")
    flags.add("partitioned-lookupd-http-address", STRING, "127.0.0.1:4161",
              "with --partitioned: <addr>:<port> of the first nsqlookupd")
    flags.add("partitioned-topic", TOPICS, (),
              "with --partitioned: NAME:PARTITIONS[:ordered][:extended] (may be given multiple"
              " times)")


def build_cluster(parsed: Parsed) -> PartitionedCluster:
    from nsqclient.devserver.partitioned.cluster import PartitionedCluster

    values = parsed.values
    for name in sorted(_NOT_PARTITIONED & parsed.given):
        raise FlagError(f"--{name} cannot be combined with --partitioned")
    host, tcp_port = parse_listen_address(values["tcp-address"], "tcp-address")
    _, http_port = parse_listen_address(values["http-address"], "http-address")
    _, lookupd_port = parse_listen_address(
        values["partitioned-lookupd-http-address"], "partitioned-lookupd-http-address"
    )
    cluster = PartitionedCluster(
        msg_timeout=values["msg-timeout"], max_msg_timeout=values["max-msg-timeout"],
        # nsqlookupd also announces this host, so it must not be empty.
        host=host or "0.0.0.0",  # nosec B104 # asked for
        tcp_port=tcp_port, http_port=http_port, lookupd_http_port=lookupd_port,
    )
    for topic in values["partitioned-topic"]:
        cluster.create_topic(**topic, replicas=2)
    return cluster


def build_nsqlookupd() -> Command:
    flags = ServerCommand(
        "nsqlookupd", _build_nsqlookupd, "Runs the embedded nsqlookupd until a signal.",
        ignores_words=True, version=version_line("nsqlookupd"))
    flags.group("Addresses")
    flags.add("tcp-address", STRING, "127.0.0.1:4160",
              "<addr>:<port> to listen on for TCP clients")
    flags.add("http-address", STRING, "127.0.0.1:4161",
              "<addr>:<port> to listen on for HTTP clients")
    flags.add("broadcast-address", STRING, "",
              "address of this lookupd node (default: the listening address, or the host name)")
    flags.group("Producers")
    flags.add("inactive-producer-timeout", DURATION, 300.0,
              "duration of time a producer will remain in the active list since its last ping")
    flags.add("tombstone-lifetime", DURATION, 45.0,
              "duration of time a producer will remain tombstoned if registration remains")
    flags.add_common()
    return flags


def _build_nsqlookupd(parsed: Parsed) -> Server:
    values = parsed.values
    host, tcp_port = parse_listen_address(values["tcp-address"], "tcp-address")
    http_host, http_port = parse_listen_address(values["http-address"], "http-address")
    return Nsqlookupd(
        host,
        tcp_port,
        http_port,
        broadcast_address=values["broadcast-address"] or None,
        inactive_producer_timeout=values["inactive-producer-timeout"],
        tombstone_lifetime=values["tombstone-lifetime"],
        http_host=http_host,
    )
