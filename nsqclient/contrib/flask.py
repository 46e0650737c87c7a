"""``NSQ``: the Flask extension. Publishes from views, runs handlers inside the app's context.

::

    nsq = NSQ()

    @nsq.handler("orders", channel="mail", workers=4)
    def send_mail(message): ...

    nsq.init_app(app)        # app.config["NSQCLIENT"] as in nsqclient.contrib.settings

and ``flask nsq consume`` runs the handlers. The page ``docs/topics/flask.rst`` is the manual.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import click
from flask import Flask, current_app
from flask.cli import AppGroup
from flask.helpers import get_debug_flag

from nsqclient.consuming.handling import Handler
from nsqclient.contrib.process_producer import ProcessProducer
from nsqclient.contrib.reloading import Reloader, is_child
from nsqclient.contrib.running import ConsumerGroup, find_complaint, within
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.producer import Producer
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.runtime.deadline import Duration
from nsqclient.runtime.user_functions import check_function

_EXTENSION = "nsqclient"

H = TypeVar("H", bound=Handler)


class _Registered(NamedTuple):
    """A handler and how it was registered."""

    topics: tuple[str, ...]
    channel: str
    handler: Handler
    workers: int
    max_in_flight: int | None


class _State(NamedTuple):
    """What one app has."""

    settings: Settings
    producer: ProcessProducer


class NSQ:
    """The extension. One object may serve several apps.

    Args:
        app: as ``init_app``, for projects without an application factory.

    Threads: any. Each process has a producer of its own, also when gunicorn forked it.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._handlers: list[_Registered] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Read ``app.config["NSQCLIENT"]`` and add the command ``flask nsq consume``. No network.

        Raises:
            ConfigError: the setting is missing or wrong.
        """
        settings = Settings.read(app.config.get("NSQCLIENT"))
        app.extensions[_EXTENSION] = _State(settings, ProcessProducer(settings.make_producer))
        app.cli.add_command(self._commands())

    # -- publishing

    @property
    def producer(self) -> Producer:
        """The producer of this process and of the current app; it connects by itself.

        Never close it: it ends with the process.

        Raises:
            RuntimeError: there is no application context, or ``init_app`` was not called.
        """
        return _state(current_app.extensions).producer.get()

    def publish(
        self,
        topic: str,
        body: bytes,
        defer: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Store one message: :meth:`nsqclient.Producer.publish` of the current app's producer.

        With Flask-SQLAlchemy publish after ``db.session.commit()``, so that nothing is announced
        that is rolled back.
        """
        self.producer.publish(topic, body, defer, timeout)

    def close(self, app: Flask) -> bool:
        """Close the producer of an app, for tests; the next publish makes a new one.

        Blocks: 5 s at most. Returns: whether everything had its verdict.
        """
        return _state(app.extensions).producer.close()

    # -- consuming

    def handler(
        self, *topics: str, channel: str, workers: int = 1, max_in_flight: int | None = None
    ) -> Callable[[H], H]:
        """Register a function, or a BatchHandler, for ``flask nsq consume``; a decorator.

        Each message is handled inside an application context of its own, so what
        ``teardown_appcontext`` cleans up after a request is cleaned up after a message.

        Args:
            topics: one or more; each has a consumer.
            channel: the channel of all of them.
            workers: threads that run the handler, for each topic.
            max_in_flight: messages out at once, for each topic; None: the settings', and at
                least one for each worker.

        Raises:
            InvalidTopicError, InvalidChannelError: no such names.
            ConfigError: no topic, or the function cannot handle messages.
        """
        if not topics:
            raise ConfigError('handler() needs a topic: @nsq.handler("orders", channel="mail")')
        for topic in topics:
            check_topic(topic)
        check_channel(channel)

        def register(function: H) -> H:
            check_function(function, "handler", "message")
            self._handlers.append(_Registered(topics, channel, function, workers, max_in_flight))
            return function

        return register

    def make_group(self, app: Flask, only: tuple[str, ...] = ()) -> ConsumerGroup:
        """Build the consumers of all handlers, or of those of some topics; they are not started.

        Raises:
            ConfigError: no handler is registered for these topics, or its arguments are wrong.
        """
        group = ConsumerGroup(_state(app.extensions).settings)
        for topics, channel, handler, workers, max_in_flight in self._handlers:
            wanted = [topic for topic in topics if not only or topic in only]
            group.add(wanted, channel, within(handler, app.app_context), workers=workers,
                      max_in_flight=max_in_flight)
        missing = set(only) - {consumer.topic for consumer in group.consumers}
        if missing or not group.consumers:
            which = f" for {', '.join(sorted(missing))}" if missing else ""
            raise ConfigError(f"no handler is registered{which}: write @nsq.handler(...)")
        return group

    def _commands(self) -> AppGroup:
        group = AppGroup("nsq", help="Consume NSQ topics.")

        # Without Flask's own context around it: each message has one of its own.
        @group.command("consume", with_appcontext=False)
        @click.option("--topic", "topics", multiple=True,
                      help="Only the handlers of this topic; may be repeated.")
        @click.option("--stop-timeout", type=float, default=30.0, show_default=True,
                      help="Seconds that running handlers have at the end.")
        @click.option("--reload/--no-reload", "reloads", default=None,
                      help="Restart when code changes; the default with --debug.")
        @click.pass_context
        def consume(
            context: click.Context, topics: tuple[str, ...], stop_timeout: float,
            reloads: bool | None,
        ) -> None:
            """Run the registered handlers until Ctrl-C or SIGTERM.

            Exit status: 0 after a stop in order, 1 when a message had to be abandoned.
            """
            app = context.obj.load_app()
            if not is_child() and (get_debug_flag() if reloads is None else reloads):
                context.exit(Reloader(Path(app.root_path), click.echo).run())
            try:
                consumers = self.make_group(app, topics)
            except ConfigError as exc:
                raise click.ClickException(str(exc)) from exc
            for consumer in consumers.consumers:
                click.echo(f"consuming {consumer.topic} on channel {consumer.channel}")
            reports = consumers.run(stop_timeout)
            complaint = find_complaint(reports)
            if complaint:
                raise click.ClickException(complaint)

        return group


def _state(extensions: dict[str, object]) -> _State:
    state = extensions.get(_EXTENSION)
    if not isinstance(state, _State):
        raise RuntimeError("this app has no NSQ: call nsq.init_app(app) first")
    return state
