"""``nsqclient nsqlookupd``: the embedded nsqlookupd, with the flags of the real one.

Unlike the real one it listens on 127.0.0.1 by default, and announces that address to nsqd. Exit
status: 0 after SIGINT or SIGTERM, 1 for an invalid option or a port in use, 2 for bad flags.
"""

from __future__ import annotations

from nsqclient.cli.command import Command
from nsqclient.cli.daemon import Server, ServerCommand, parse_listen_address
from nsqclient.cli.flags import DURATION, STRING, Parsed
from nsqclient.devserver.nsqlookupd import Nsqlookupd
from nsqclient.devserver.protocol.commands import version_line

PROGRAM = "nsqlookupd"


def build_command() -> Command:
    """The command and its flags."""
    flags = ServerCommand(
        PROGRAM, _build, "Runs the embedded nsqlookupd until a signal.", ignores_words=True,
        version=version_line(PROGRAM))
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


def _build(parsed: Parsed) -> Server:
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
