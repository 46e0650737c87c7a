"""``ConsumerGroup``: the consumers of one command, started together and stopped together.

Also reads the handler that a command line names. Knows no framework.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from nsqclient.batch import BatchHandler
from nsqclient.consumer import Consumer
from nsqclient.consuming.handling import Handler
from nsqclient.consuming.reports import StopReport
from nsqclient.consuming.signals import first_signal
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError

logger = logging.getLogger("nsqclient.consumer")


def load_handler(path: str) -> Handler:
    """Import ``package.module.name`` or ``package.module:name``.

    Raises:
        ConfigError: there is no such module or name, or it cannot handle messages.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not module_name:
        raise ConfigError(f"handler {path!r}: give a dotted path such as shop.tasks.handle")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        # An import that fails inside of the module is the module's own error.
        if exc.name is None or not f"{module_name}.".startswith(f"{exc.name}."):
            raise
        raise ConfigError(f"handler {path!r}: there is no module {exc.name!r}") from exc
    try:
        handler = getattr(module, name)
    except AttributeError:
        raise ConfigError(f"handler {path!r}: {module_name} has no {name!r}") from None
    return check_handler(handler, path)


def check_handler(handler: Any, name: str) -> Handler:
    """Return ``handler`` when it can handle messages.

    Raises:
        ConfigError: it is not callable, a class, or asynchronous: calling it would handle nothing.
    """
    if inspect.isclass(handler):
        raise ConfigError(f"handler {name!r} is a class: name a function, or an instance")
    if not callable(handler):
        raise ConfigError(f"handler {name!r} is not callable: {handler!r:.80}")
    if inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler):
        raise ConfigError(
            f"handler {name!r} is asynchronous: handlers run in threads; write def, not async def"
        )
    return handler  # type: ignore[no-any-return]  # callable() leaves it Any


def within(handler: Handler, around: Callable[[], AbstractContextManager[Any]]) -> Handler:
    """Return a handler that runs ``handler`` inside of ``around()``, for each message.

    Of a BatchHandler a copy is made, with the same size, whose batches run inside of it.
    """

    def wrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(function, updated=())
        def run(argument: Any) -> Any:
            with around():
                return function(argument)

        return run

    if isinstance(handler, BatchHandler):
        return handler.wrapped(wrap)
    return wrap(handler)


def find_complaint(reports: Iterable[StopReport]) -> str:
    """Return what a command has to say about a stop, and what to do; empty when all is well."""
    abandoned = sum(report.abandoned for report in reports)
    if not abandoned:
        return ""
    return (
        f"{abandoned} messages were still being handled: nsqd delivers them again after their"
        " msg_timeout; a longer --stop-timeout lets them finish"
    )


class ConsumerGroup:
    """Consumers that start and stop together.

    Life: created, ``add``, then ``run`` (blocks), or ``start`` and ``stop``. Threads: ``stop``
    from any; the rest in one.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.consumers: list[Consumer] = []

    def add(
        self,
        topics: Iterable[str],
        channel: str,
        handler: Handler,
        *,
        workers: int = 1,
        max_in_flight: int | None = None,
    ) -> None:
        """Add a consumer for each topic, with so many workers each.

        Args:
            max_in_flight: of each consumer; None: the settings', and at least ``workers``.

        Raises:
            ConfigError, InvalidTopicError, InvalidChannelError: as a Consumer does.
        """
        if max_in_flight is None:
            max_in_flight = max(workers, self._settings.config.max_in_flight)
        for topic in dict.fromkeys(topics):
            if isinstance(handler, BatchHandler):  # one serves one consumer
                handler = handler.wrapped(lambda function: function)
            self.consumers.append(Consumer(
                topic, channel, handler, workers=workers, max_in_flight=max_in_flight,
                config=self._settings.config, **self._settings.consumer_addresses(),
            ))

    def start(self) -> None:
        """Start all. Returns at once."""
        for consumer in self.consumers:
            consumer.start()

    def stop(self, timeout: float = 30.0) -> list[StopReport]:
        """Stop all at once; return their reports. Blocks: as ``Consumer.stop`` does."""
        reports: list[StopReport] = []
        threads = [
            threading.Thread(
                target=lambda consumer=consumer: reports.append(consumer.stop(timeout)),
                name="nsq-stop-group", daemon=True,
            )
            for consumer in self.consumers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return reports

    def run(self, stop_timeout: float = 30.0) -> list[StopReport]:
        """Start all, block until SIGINT or SIGTERM (in the main thread), stop all.

        The second signal interrupts the stop. Returns: the reports.
        """
        with first_signal() as came:
            self.start()
            # A timeout lets Python run signal handlers on every platform.
            while not came.wait(0.5):
                pass
            logger.info("signal: stopping %d consumers", len(self.consumers))
            return self.stop(stop_timeout)
