"""``manage.py nsq_relay``: publish the messages of the outbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import django.db
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections

from nsqclient.contrib.django.outbox.models import OutboxMessage
from nsqclient.contrib.django.outbox.relay import Relay, publish_all
from nsqclient.contrib.django import get_producer
from nsqclient.errors import ConfigError
from nsqclient.metrics import check_prometheus
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.version import __version__
from nsqclient.worker.loading import UsageError
from nsqclient.worker.status_server import Response, live_response, serve_status

_USAGE = 2
_MOST_ROWS = 1000


class Command(BaseCommand):
    """Publishes until SIGINT or SIGTERM, or with ``--once`` until the table is empty."""

    help = "Publishes the messages in the outbox to NSQ until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS,
                            help="database alias (default: default)")
        parser.add_argument("--batch-size", type=int, default=100,
                            help="maximum number of messages per transaction (default: 100)")
        parser.add_argument("--interval", type=float, default=0.5,
                            help="seconds between two queries of an empty table (default: 0.5)")
        parser.add_argument("--once", action="store_true",
                            help="publish all waiting messages, then exit")
        parser.add_argument("--health-address", default="", metavar="HOST:PORT",
                            help="address on which to serve /live and /ready")
        parser.add_argument("--metrics-address", default="", metavar="HOST:PORT",
                            help="address on which to serve /metrics (Prometheus)")

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        _check_command_line(options)
        producer = get_producer()
        relay = Relay(using, producer, batch_size=options["batch_size"],
                      interval=options["interval"], measures=bool(options["metrics_address"]))
        _check_table(using)
        if options["once"]:
            problem = publish_all(relay)
            if problem:
                raise CommandError(problem)
            return
        with ExitStack() as stack:
            try:
                addresses = stack.enter_context(_serve_status(relay, options))
            except UsageError as exc:
                raise CommandError(str(exc), returncode=_USAGE) from exc
            except ConfigError as exc:
                raise CommandError(str(exc)) from exc
            signals = stack.enter_context(Signals(Second.FORMER))
            # After the signal handlers: a reader of these lines may send a signal immediately.
            for line in (f"nsqclient {__version__}",
                         f"publishing the outbox of database {using} with {producer!r}",
                         *addresses, "Ctrl-C stops"):
                self.stdout.write(line)
            self.stdout.flush()
            relay.run(signals.wait)


def _check_command_line(options: dict[str, Any]) -> None:
    problem = ""
    if options["database"] not in connections:
        problem = f"--database: there is no database {options['database']!r} in DATABASES"
    elif not 1 <= options["batch_size"] <= _MOST_ROWS:
        problem = f"--batch-size must be from 1 to {_MOST_ROWS}, not {options['batch_size']}"
    elif not 0.01 <= options["interval"] <= 3600:
        problem = f"--interval must be from 0.01 to 3600 s, not {options['interval']:g}"
    if problem:
        raise CommandError(problem, returncode=_USAGE)


def _check_table(using: str) -> None:
    connection = connections[using]
    table = OutboxMessage._meta.db_table
    try:
        tables = connection.introspection.table_names()
    except django.db.Error:
        connection.close()  # the relay will retry
        return
    if table not in tables:
        database = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
        raise CommandError(
            f"the database {using!r} has no table {table!r}: run"
            f" manage.py migrate nsqclient_outbox{database}")


def _serve_status(relay: Relay, options: dict[str, Any]) -> AbstractContextManager[list[str]]:
    def ready() -> Response:
        body = {"ready": not relay.failure, "reason": relay.failure}
        return Response(503 if relay.failure else 200, "application/json",
                        json.dumps(body).encode() + b"\n")

    return serve_status(
        options["health_address"], options["metrics_address"],
        {"/live": live_response, "/ready": ready},
        _scrape(relay) if options["metrics_address"] else None)


def _scrape(relay: Relay) -> Callable[[], Response]:
    check_prometheus("--metrics-address")
    from nsqclient.metrics.prometheus import NSQCollector, render

    producers = NSQCollector(None)
    producers.add_producer(get_producer())
    return lambda: Response(200, *render([*relay.counters.collect(), *producers.collect()]))
