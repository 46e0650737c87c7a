"""``NSQ``: the Flask extension: publishes from views, runs handlers inside the app's context.

::

    nsq = NSQ()

    @nsq.handler("orders", channel="mail", workers=4)
    def send_mail(message): ...

    nsq.init_app(app)        # app.config["NSQCLIENT"] as in nsqclient.contrib.settings

and ``flask nsq consume`` runs the handlers. The manual is ``docs/topics/flask.rst``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from flask import Flask, current_app
from flask.cli import AppGroup
from flask.helpers import get_debug_flag

from nsqclient.cli.worker import changed_setting, read_flags, read_options, worker_flags
from nsqclient.consumer.processor import Handler
from nsqclient.contrib.settings import ProcessProducer, Settings
from nsqclient.display import paint_result
from nsqclient.errors import ConfigError
from nsqclient.partitioned.producer import Producer
from nsqclient.protocol.commands import Body
from nsqclient.runtime.deadline import Duration
from nsqclient.worker.loading import UsageError
from nsqclient.worker.group import GROUP_ERRORS, ConsumerGroup, add_all
from nsqclient.worker.registry import HandlerOptions, HandlerRegistry, registry
from nsqclient.worker.runner import run_worker

_EXTENSION = "nsqclient"

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nsqclient.metrics.prometheus import WorkerMetrics

H = TypeVar("H", bound=Handler)


class _State(NamedTuple):
    settings: Settings
    producer: ProcessProducer


class NSQ:
    """The extension, for one or several apps. ``NSQ(app)`` calls ``init_app``.

    Threads: any. Each process has its own producer, also after a fork.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._registry = HandlerRegistry()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Read ``app.config["NSQCLIENT"]`` and add the command ``flask nsq consume``. No network.

        Raises ConfigError if the setting is missing or wrong.
        """
        settings = Settings.read(app.config.get("NSQCLIENT"))
        app.extensions[_EXTENSION] = _State(settings, ProcessProducer(settings.make_producer))
        app.cli.add_command(self._commands())

    @property
    def producer(self) -> Producer:
        """The producer of the current app in this process. It is flushed at exit: do not close it.

        Raises RuntimeError without an application context or ``init_app``.
        """
        return _state(current_app.extensions).producer.get()

    def publish(
        self,
        topic: str,
        body: Body,
        defer: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Store one message: :meth:`nsqclient.Producer.publish` of the current app's producer.

        With Flask-SQLAlchemy publish after ``db.session.commit()``: a rollback cannot undo it.
        """
        self.producer.publish(topic, body, defer, timeout)

    def publish_json(
        self,
        topic: str,
        value: Any,
        defer: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Store one message whose body is ``value`` as JSON; otherwise as :meth:`publish`."""
        self.producer.publish_json(topic, value, defer, timeout)

    def close(self, app: Flask) -> bool:
        """Close the producer of an app, for tests; return True if every publish has an outcome.

        Blocks: 5 s at most. The next publish creates a new producer.
        """
        return _state(app.extensions).producer.close()

    def handler(
        self, *topics: str, channel: str, workers: int = 1, max_in_flight: int | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[H], H]:
        """Register a function, or a BatchHandler, for ``flask nsq consume``; a decorator.

        Each message is handled inside its own application context, as a request is. ``retry`` and
        ``on_giving_up`` are called in contexts of their own.

        Args:
            topics: one or more; each has a consumer.
            channel: the channel of all of them.
            workers, max_in_flight: for each topic; see ``nsqclient.handler``.
            options: other options of ``nsqclient.handler``.

        Raises:
            InvalidTopicError, InvalidChannelError: a name is invalid.
            ConfigError: no topic is given, the function cannot handle messages, or the channel
                already has a handler.
        """
        if not topics:
            raise ConfigError('handler() needs a topic: @nsq.handler("orders", channel="mail")')
        decorators = [
            self._registry.handler(
                topic, channel, workers=workers, max_in_flight=max_in_flight, **options)
            for topic in dict.fromkeys(topics)
        ]

        def decorate(function: H) -> H:
            for decorator in decorators:
                decorator(function)
            return function

        return decorate

    def make_group(
        self,
        app: Flask,
        only: Iterable[str] = (),
        metrics: WorkerMetrics | None = None,
        settings: Settings | None = None,
    ) -> ConsumerGroup:
        """Create the consumers of all handlers, or of some topics, without starting them.

        Includes handlers registered with ``@nsqclient.handler``. ``metrics`` exports the consumers'
        metrics; ``settings`` replace those of the app.

        Raises:
            ConfigError: these topics have no handler, or an argument is invalid.
        """
        settings = _state(app.extensions).settings if settings is None else settings
        group = ConsumerGroup(
            settings.config, settings.consumer_addresses(),
            [*settings.load_middleware(), lambda handling: app.app_context()], metrics,
            app.app_context)
        try:
            add_all(group, [*self._registry, *registry], only)
        except ConfigError as exc:
            if str(exc).startswith("no handler is registered"):
                raise type(exc)(f"{exc}: write @nsq.handler(...)") from exc
            raise
        return group

    def _commands(self) -> AppGroup:
        group = AppGroup("nsq", help="Consume NSQ topics.")

        # Without Flask's context: each message has its own.
        @group.command("consume", with_appcontext=False)
        @_with_worker_flags
        @click.option("--reload/--no-reload", "reloads", default=None,
                      help="Restart when code changes (default: only with --debug).")
        @click.pass_context
        def consume(context: click.Context, /, reloads: bool | None, **options: Any) -> None:
            """Run the registered handlers until Ctrl-C or SIGTERM.

            Exit status: 0; 1 when it cannot start, or a message had to be abandoned; 2 for a wrong
            command line; 3 when its processes die at once.
            """
            load_app = context.obj.load_app
            if reloads is None:
                reloads = get_debug_flag()
            try:
                parsed = read_flags(
                    {name.replace("_", "-"): value for name, value in options.items()})
                values = parsed.values
                status = run_worker(
                    lambda metrics: self.make_group(
                        load_app(), values["topic"], metrics, Settings.read(
                            changed_setting(load_app().config.get("NSQCLIENT"), values))),
                    read_options(
                        parsed, Path(load_app().root_path) if reloads else None),
                    _report)
            except UsageError as exc:
                raise click.UsageError(str(exc)) from exc
            except GROUP_ERRORS as exc:
                raise click.ClickException(str(exc)) from exc
            context.exit(status)

        return group


def _with_worker_flags(command: Callable[..., None]) -> Callable[..., None]:
    for flag in reversed(worker_flags()):
        command = click.option(f"--{flag.name}", multiple=flag.kind.is_list,
                               is_flag=flag.kind.is_switch, help=flag.help)(command)
    return command


def _report(line: str) -> None:
    click.echo(paint_result(line, sys.stdout))


def _state(extensions: dict[str, object]) -> _State:
    state = extensions.get(_EXTENSION)
    if not isinstance(state, _State):
        raise RuntimeError("this app has no NSQ: call nsq.init_app(app) first")
    return state
