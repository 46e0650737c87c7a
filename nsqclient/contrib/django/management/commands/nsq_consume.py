"""``manage.py nsq_consume``: run a handler for the messages of topics."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import autoreload

from nsqclient.contrib.django.handlers import with_databases
from nsqclient.contrib.django.publishing import read_settings
from nsqclient.contrib.running import ConsumerGroup, find_complaint, load_handler
from nsqclient.errors import ConfigError, InvalidChannelError, InvalidTopicError

#: Seconds that handlers have before a reload: nsqd delivers again what they had not finished.
_RELOAD_TIMEOUT = 3.0


class Command(BaseCommand):
    """Consumes until SIGINT or SIGTERM; with DEBUG it restarts when code changes.

    Exit status: 0 after a stop in order, 1 when a message had to be abandoned or nothing could
    be started.
    """

    help = "Runs a handler for the messages of NSQ topics, until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        """For Django: the command line."""
        parser.add_argument("handler", help="dotted path of a function that takes a message")
        parser.add_argument("--topic", action="append", required=True, dest="topics",
                            help="may be given several times")
        parser.add_argument("--channel", required=True)
        parser.add_argument("--workers", type=int, default=1,
                            help="threads that run the handler, for each topic (default: 1)")
        parser.add_argument("--max-in-flight", type=int,
                            help="messages out at once, for each topic (default: the settings',"
                                 " and at least one for each worker)")
        parser.add_argument("--atomic", nargs="?", const=DEFAULT_DB_ALIAS, metavar="DATABASE",
                            help="run each message in a transaction (of this database alias)")
        parser.add_argument("--stop-timeout", type=float, default=30.0,
                            help="seconds that running handlers have at the end (default: 30)")
        parser.add_argument("--noreload", action="store_false", dest="use_reloader",
                            help="do not restart when code changes; without DEBUG it never does")

    def handle(self, *args: Any, **options: Any) -> None:
        """For Django: run the command."""
        atomic = options["atomic"]
        if atomic is not None and atomic not in connections:
            raise CommandError(f"--atomic: there is no database {atomic!r} in DATABASES")
        if not (options["use_reloader"] and settings.DEBUG):
            reports = self._make_group(options).run(options["stop_timeout"])
            complaint = find_complaint(reports)
            if complaint:
                raise CommandError(complaint)
            return
        groups: list[ConsumerGroup] = []
        try:
            # It runs its function in a thread, and ends the process from this one.
            autoreload.run_with_reloader(self._run_until_reload, options, groups)
        finally:
            for group in groups:
                group.stop(_RELOAD_TIMEOUT)

    def _make_group(self, options: dict[str, Any]) -> ConsumerGroup:
        try:
            handler = with_databases(load_handler(options["handler"]), options["atomic"])
            group = ConsumerGroup(read_settings())
            group.add(options["topics"], options["channel"], handler,
                      workers=options["workers"], max_in_flight=options["max_in_flight"])
        except (ConfigError, InvalidTopicError, InvalidChannelError) as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(
            f"consuming {', '.join(options['topics'])} on channel {options['channel']} with"
            f" {options['handler']}; Ctrl-C stops"
        )
        self.stdout.flush()
        return group

    def _run_until_reload(self, options: dict[str, Any], groups: list[ConsumerGroup]) -> None:
        try:
            group = self._make_group(options)
        except CommandError as exc:
            self.stderr.write(f"{exc}; waiting for a change")
            return
        groups.append(group)
        group.start()
