"""``manage.py nsq_consume``: run handlers for the messages of topics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import (
    DEFAULT_DB_ALIAS, close_old_connections, connections, reset_queries, transaction,
)
from django.utils.module_loading import module_has_submodule

from nsqclient.cli.flags import Parsed
from nsqclient.cli.worker import (
    add_function, changed_setting, read_flags, read_options, worker_flags,
)
from nsqclient.consumer.middleware import Handling, Middleware
from nsqclient.contrib.settings import Settings
from nsqclient.display import paint_result
from nsqclient.worker.group import GROUP_ERRORS, ConsumerGroup, add_all
from nsqclient.worker.loading import UnknownTargetError, UsageError, load_module
from nsqclient.worker.registry import registry
from nsqclient.worker.runner import run_worker

if TYPE_CHECKING:
    from nsqclient.metrics.prometheus import WorkerMetrics

_USAGE = 2
#: The worker's flags for a single function.
_OF_FUNCTION = ("channel", "workers", "max-in-flight")


def database_connections(atomic: str | None = None) -> Middleware:
    """Return a middleware that treats database connections as a request does.

    Before and after each message it closes connections that are broken or older than
    ``CONN_MAX_AGE``. Each worker thread has its own connections.

    Args:
        atomic: alias of a database on which the handler runs in a transaction. It commits before
            the message is finished, and is rolled back if the handler raises.
    """

    @contextmanager
    def around(handling: Handling) -> Iterator[None]:
        with _fresh_connections(), nullcontext() if atomic is None else transaction.atomic(atomic):
            yield

    return around


@contextmanager
def _fresh_connections() -> Iterator[None]:
    reset_queries()  # with DEBUG they accumulate, without limit in a worker
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


class Command(BaseCommand):
    """Consumes until SIGINT or SIGTERM; with DEBUG it restarts when code changes."""

    help = "Runs handlers for messages from NSQ topics until Ctrl-C or SIGTERM."
    # Each consuming process runs the checks, so that a failing check does not end the supervisor.
    requires_system_checks: Sequence[str] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("handlers", nargs="*", metavar="handler",
                            help="with --channel: dotted path of a function; otherwise: modules"
                                 " whose @nsqclient.handler functions to run (default: the module"
                                 " handlers of each app)")
        parser.add_argument("--atomic", nargs="?", const=DEFAULT_DB_ALIAS, metavar="DATABASE",
                            help="handle each message in a transaction (of this database alias)")
        for flag in worker_flags(*_OF_FUNCTION):
            action = "store_true" if flag.kind.is_switch else "store"
            parser.add_argument(f"--{flag.name}", action="append" if flag.kind.is_list else action,
                                help=flag.help.replace("%", "%%"))
        parser.add_argument("--noreload", action="store_false", dest="use_reloader",
                            help="do not restart when code changes (only used with DEBUG)")
        parser.add_argument("--skip-checks", action="store_true", help="skip the system checks")

    def handle(self, *args: Any, **options: Any) -> None:
        reloads = options["use_reloader"] and settings.DEBUG
        try:
            parsed = read_flags({flag.name: options[flag.name.replace("-", "_")]
                                 for flag in worker_flags(*_OF_FUNCTION)})
            self._check_command_line(options, parsed)
            status = run_worker(
                lambda metrics: self._make_group(options, parsed, metrics),
                read_options(parsed, _project_folder() if reloads else None),
                self._report)
        except UsageError as exc:
            raise CommandError(str(exc), returncode=_USAGE) from exc
        except GROUP_ERRORS as exc:
            raise CommandError(str(exc)) from exc
        if status:
            sys.exit(status)

    def _check_command_line(self, options: dict[str, Any], parsed: Parsed) -> None:
        atomic, values = options["atomic"], parsed.values
        problem = ""
        if atomic is not None and atomic not in connections:
            problem = f"--atomic: there is no database {atomic!r} in DATABASES"
        elif values["channel"] and (len(options["handlers"]) != 1 or not values["topic"]):
            problem = "--channel is for one function: give its path, and --topic"
        elif not values["channel"] and parsed.given & {"workers", "max-in-flight"}:
            problem = "--workers and --max-in-flight are for one function, with --channel"
        if problem:
            raise UsageError(problem)

    def _make_group(
        self, options: dict[str, Any], parsed: Parsed, metrics: WorkerMetrics | None
    ) -> ConsumerGroup:
        if not options["skip_checks"]:
            self.check()
        values = parsed.values
        found = Settings.read(changed_setting(getattr(settings, "NSQCLIENT", None), values))
        group = ConsumerGroup(
            found.config, found.consumer_addresses(),
            [*found.load_middleware(), database_connections(options["atomic"])], metrics,
            _fresh_connections)
        if values["channel"]:
            add_function(group, options["handlers"][0], parsed)
            return group
        if options["handlers"]:
            for name in options["handlers"]:
                try:
                    load_module(name)
                except UnknownTargetError as exc:
                    raise UnknownTargetError(
                        f"{exc}; for a function give --topic and --channel too") from exc
        else:
            for app in apps.get_app_configs():
                if app.module is not None and module_has_submodule(app.module, "handlers"):
                    load_module(f"{app.name}.handlers")
        add_all(group, registry, values["topic"])
        return group

    def _report(self, line: str) -> None:
        self.stdout.write(paint_result(line, self.stdout))
        self.stdout.flush()


def _project_folder() -> Path:
    return Path(getattr(settings, "BASE_DIR", None) or Path.cwd())
