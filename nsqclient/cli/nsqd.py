"""``nsqclient nsqd``: the embedded nsqd, with the flags of the real one.

Unlike the real one it listens on 127.0.0.1 unless told otherwise, and keeps messages on disk only
where ``--data-path`` is given. ``--partitioned`` runs a whole cluster of partitioned NSQ. Flags of
things that it does not have are taken and said to have no effect. Exit status: 0 after SIGINT or
SIGTERM, 1 for a port or option that cannot be, 2 for bad flags.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nsqclient.cli import partitioned
from nsqclient.cli.daemon import Server, add_common_flags, parse_listen_address, run
from nsqclient.cli.goflags import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRINGS,
    CommandLineError,
    FlagSet,
    Kind,
    Parsed,
)
from nsqclient.cli.tools import SECRET_FILE, read_key_password
from nsqclient.devserver.nsqd import Nsqd
from nsqclient.devserver.options import NsqdOptions, default_node_id
from nsqclient.devserver.release import NSQ_VERSION
from nsqclient.version import __version__

logger = logging.getLogger("nsqclient.devserver")

PROGRAM = "nsqd"


def _parse_tls_required(text: str) -> bool | str:
    if text.lower() == "tcp-https":
        return "tcp-https"
    value: bool = BOOL.parse(text)
    return value


TLS_REQUIRED = Kind("", _parse_tls_required, str, is_switch=True)

#: Flags that are options of :class:`Nsqd` under the same name: (flag, kind, help).
_OPTIONS = [
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
    ("tls-cert", STRING, "path to certificate file"),
    ("tls-client-auth-policy", STRING, "client certificate policy (require, require-verify)"),
    ("tls-key", STRING, "path to key file"),
    ("tls-min-version", STRING, "minimum TLS version acceptable (tls1.0 to tls1.3)"),
    ("tls-required", TLS_REQUIRED, "require TLS for client connections (true, false, tcp-https)"),
    ("tls-root-ca-file", STRING, "path to certificate authority file"),
]

#: Flags of things that the embedded nsqd does not have.
_IGNORED = [
    ("broadcast-http-port", INT), ("broadcast-tcp-port", INT),
    ("e2e-processing-latency-percentile", STRINGS),
    ("e2e-processing-latency-window-time", DURATION), ("http-client-connect-timeout", DURATION),
    ("http-client-request-timeout", DURATION), ("https-address", STRING),
    ("max-bytes-per-file", INT), ("queue-scan-selection-count", INT),
    ("queue-scan-worker-pool-max", INT), ("statsd-address", STRING),
    ("statsd-exclude-ephemeral", BOOL), ("statsd-interval", DURATION),
    ("statsd-mem-stats", BOOL), ("statsd-prefix", STRING), ("statsd-udp-packet-size", INT),
    ("sync-every", INT), ("sync-timeout", DURATION), ("worker-id", INT),
]

#: How a config file calls a flag, where that is not the flag with underscores.
_CONFIG_NAMES = {
    "node-id": "id",
    "lookupd-tcp-address": "nsqlookupd_tcp_addresses",
    "auth-http-address": "auth_http_addresses",
    "e2e-processing-latency-percentile": "e2e_processing_latency_percentiles",
}


def build_flags() -> FlagSet:
    """The flags of nsqd."""
    defaults = NsqdOptions()
    flags = FlagSet(PROGRAM)
    add_common_flags(flags)
    flags.add("tcp-address", STRING, "127.0.0.1:4150",
              "<addr>:<port> to listen on for TCP clients")
    flags.add("http-address", STRING, "127.0.0.1:4151",
              "<addr>:<port> to listen on for HTTP clients")
    flags.add("broadcast-address", STRING, "",
              "address that is registered with lookupd (default: what it listens on)")
    flags.add("lookupd-tcp-address", STRINGS, (),
              "lookupd TCP address (may be given multiple times)")
    flags.add("auth-http-address", STRINGS, (),
              "<addr>:<port> or a full url to query auth server (may be given multiple times)")
    flags.add("data-path", STRING, "",
              "directory to keep messages in (default: memory only)")
    flags.add("node-id", INT, default_node_id(),
              "unique part for message IDs, (int) in range [0,1024)")
    for name, kind, text in _OPTIONS:
        flags.add(name, kind, getattr(defaults, name.replace("-", "_")), text)
    flags.add("tls-key-password-file", SECRET_FILE, "", "path to a file with the password of an"
              " encrypted key (or set $NSQCLIENT_TLS_KEY_PASSWORD)")
    partitioned.add_flags(flags)
    for name, kind in _IGNORED:
        flags.add(name, kind, () if kind.is_list else None, "has no effect here")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsqd until a signal; return the exit status."""
    version = f"{PROGRAM} v{NSQ_VERSION} (embedded in nsqclient {__version__})"
    return run(build_flags(), argv, version, _CONFIG_NAMES, _build)


def _build(parsed: Parsed) -> Server:
    values = parsed.values
    if not 0 <= values["node-id"] < 1024:
        raise CommandLineError("--node-id must be [0,1024)")
    for name, kind, _ in _OPTIONS:
        if kind is INT and values[name] < 0:
            raise CommandLineError(f"--{name} must not be negative")
        if kind is DURATION and values[name] <= 0:
            raise CommandLineError(f"--{name} must be a positive duration")
    host, tcp_port = parse_listen_address(values["tcp-address"], "tcp-address")
    http_host, http_port = parse_listen_address(values["http-address"], "http-address")
    ignored = [name for name, _ in _IGNORED if name in parsed.given]
    if ignored:
        logger.warning("no effect in the embedded nsqd: --%s", ", --".join(ignored))
    if values["partitioned"]:
        return partitioned.build_cluster(parsed)
    return Nsqd(
        host,
        tcp_port,
        http_port,
        data_path=values["data-path"] or None,
        lookupd_tcp_addresses=values["lookupd-tcp-address"],
        http_host=http_host,
        broadcast_address=values["broadcast-address"] or None,
        node_id=values["node-id"],
        log_level=values["log-level"],
        auth_http_addresses=values["auth-http-address"],
        tls_key_password=(
            read_key_password(values, "tls-key-password-file") if values["tls-key"] else ""),
        **{name.replace("-", "_"): values[name] for name, _, _ in _OPTIONS},
    )
