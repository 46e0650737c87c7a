"""``nsqclient nsqadmin``: the admin page, with the flags of the original.

It listens on 127.0.0.1 and changes nothing by default.
"""

from __future__ import annotations

import importlib

from nsqclient import Config, TLSError
from nsqclient.admin import AdminSettings
from nsqclient.admin.settings import parse_rule
from nsqclient.cli.command import Command
from nsqclient.cli.tool_flags import (
    OPTIONS, Server, ServerCommand, add_http_timeouts, add_http_tls_flags,
    add_secret_flags, parse_listen_address, read_config as read_options, read_http_tls,
)
from nsqclient.cli.flags import (
    BOOL, DURATION, STRING, STRINGS, CommandLineError, Kind, Parsed,
)
from nsqclient.version import __version__

PROGRAM = "nsqadmin"

#: Flags of the original without an effect: this page draws its graphs itself.
_IGNORED = [
    ("dev-static-dir", STRING), ("graphite-url", STRING), ("proxy-graphite", BOOL),
    ("statsd-counter-format", STRING), ("statsd-gauge-format", STRING),
    ("statsd-interval", DURATION), ("statsd-prefix", STRING),
]

#: Flag -> its name in a config file, if that is not the flag with underscores.
_CONFIG_NAMES = {
    "lookupd-http-address": "nsqlookupd_http_addresses",
    "nsqd-http-address": "nsqd_http_addresses",
    "admin-user": "admin_users",
    "allowed-host": "allowed_hosts",
    "rewrite-address": "rewrite_addresses",
}

REWRITES = Kind("from=to", parse_rule, is_list=True)


def build_command() -> Command:
    flags = ServerCommand(
        PROGRAM, _build, "Serves a page that monitors and manages a cluster, and nsqadmin's API.")
    flags.config_names = _CONFIG_NAMES
    flags.group("Servers of the cluster (one kind of address is required)")
    flags.add("lookupd-http-address", STRINGS, (),
              "lookupd HTTP address (may be given multiple times)")
    flags.add("nsqd-http-address", STRINGS, (),
              "nsqd HTTP address (may be given multiple times)")
    flags.require("nsqd-http-address", "lookupd-http-address")
    flags.add("rewrite-address", REWRITES, (),
              "replacement for an announced nsqd address that is not reachable from here:"
              " host[:port]=host[:port] (may be given multiple times)")
    add_http_timeouts(flags)
    add_http_tls_flags(flags)
    flags.group("The page")
    flags.add("http-address", STRING, "127.0.0.1:4171",
              "<addr>:<port> to listen on for HTTP clients")
    flags.add("base-path", STRING, "/", "URL base path")
    flags.add("allowed-host", STRINGS, (),
              "host name, without port, that browsers may use to open the pages (may be given"
              " multiple times; default: the loopback names on a loopback address, otherwise any;"
              " required with --allow-actions on an address that is not loopback)")
    flags.add("refresh-interval", DURATION, 2.0,
              "time between two refreshes of an open page")
    flags.group("What users may do")
    flags.add("allow-actions", BOOL, False,
              "allow all users to publish, and to create, pause, empty and delete topics and"
              " channels")
    flags.add("admin-user", STRINGS, (),
              "allow these actions only to this user (may be given multiple times); a proxy must"
              " set the user name in the header --acl-http-header")
    flags.add("acl-http-header", STRING, "X-Forwarded-User",
              "HTTP header to check for authenticated admin users")
    flags.add("allow-config-from-cidr", STRING, "127.0.0.1/8",
              "A CIDR from which to allow HTTP requests to the /config endpoint")
    flags.add("notification-http-endpoint", STRING, "",
              "HTTP endpoint (fully qualified) to which POST notifications of admin actions will"
              " be sent")
    flags.add("allow-peek", BOOL, False, "allow users to see copies of messages")
    flags.add("consumer-opt", OPTIONS, (),
              "option of the consumer that reads copies of messages, such as tls_v1 (may be given"
              " multiple times)")
    add_secret_flags(flags)
    flags.add_common()
    flags.add_ignored(_IGNORED)
    return flags


def _build(parsed: Parsed) -> Server:
    host, port = parse_listen_address(parsed.values["http-address"], "http-address")
    settings = build_settings(parsed)
    try:
        server_module = importlib.import_module("nsqclient.admin.app")
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package not in ("flask", "waitress", "werkzeug", "prometheus_client"):
            raise
        raise CommandLineError(
            f"{package} is missing: pip install 'nsqclient[admin]'") from None
    server: Server = server_module.AdminServer(settings, host, port)
    return server


def build_settings(parsed: Parsed) -> AdminSettings:
    """Build the settings from the flags. Raises CommandLineError, ConfigError."""
    values = parsed.values
    try:
        return AdminSettings(
            lookupd_http_addresses=tuple(values["lookupd-http-address"]),
            nsqd_http_addresses=tuple(values["nsqd-http-address"]),
            base_path=values["base-path"],
            allow_actions=values["allow-actions"],
            admin_users=tuple(values["admin-user"]),
            acl_http_header=values["acl-http-header"],
            allow_peek=values["allow-peek"],
            allowed_hosts=tuple(values["allowed-host"]),
            rewrite_addresses=tuple(values["rewrite-address"]),
            notification_http_endpoint=values["notification-http-endpoint"],
            refresh_interval=values["refresh-interval"],
            connect_timeout=values["http-client-connect-timeout"],
            request_timeout=values["http-client-request-timeout"],
            allow_config_from_cidr=values["allow-config-from-cidr"],
            http_config=Config(
                user_agent=f"{PROGRAM}/{__version__} nsqclient/{__version__}",
                **read_http_tls(values)),
            consumer_config=read_options(values, PROGRAM, "consumer-opt"),
        )
    except TLSError as exc:
        raise CommandLineError(str(exc)) from exc
