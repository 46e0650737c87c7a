"""``ConsumerGroup``: the consumers of one command, started together and stopped together.

Also reads the handler that a command line names. Knows no framework.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, cast

from nsqclient.batch import BatchHandler
from nsqclient.consumer import Consumer
from nsqclient.consuming.handling import Handler
from nsqclient.consuming.life_log import LifeLog
from nsqclient.consuming.reports import StopReport
from nsqclient.consuming.signals import first_signal
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.threads import LibraryThread, ThreadStartError
from nsqclient.runtime.user_functions import check_function


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
    check_function(handler, f"handler {path!r}", "message")
    return cast(Handler, handler)


def within(handler: Handler, around: Callable[[], AbstractContextManager[Any]]) -> Handler:
    """Return a handler that runs ``handler`` inside of ``around()``, for each message.

    Of a BatchHandler a copy is made, with the same size, whose batches run inside of it.

    Raises:
        ConfigError: calling the handler would do nothing.
    """

    def wrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(function, updated=())
        def run(argument: Any) -> Any:
            with around():
                return function(argument)

        return run

    if isinstance(handler, BatchHandler):
        return handler.wrapped(wrap)
    check_function(handler, "handler", "message")  # nothing is seen of it from outside
    return wrap(handler)


def find_complaint(reports: Iterable[StopReport]) -> str:
    """Return what a command has to say about a stop, and what to do; empty when all is well."""
    abandoned = sum(report.abandoned for report in reports)
    if not abandoned:
        return ""
    return (
        f"abandoned while being handled: {counted(abandoned, 'message')}; nsqd delivers again after"
        " the msg_timeout, a longer --stop-timeout lets them finish"
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
            LibraryThread(
                lambda consumer=consumer: reports.append(consumer.stop(timeout)),
                "nsq-stop-group",
            )
            for consumer in self.consumers
        ]
        deadline = Deadline(timeout)
        rest = []
        for thread, consumer in zip(threads, self.consumers):
            try:
                thread.launch()
            except ThreadStartError:
                rest.append(consumer)
        for consumer in rest:  # one after the other, in the time of all
            reports.append(consumer.stop(deadline.at_most(timeout)))
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
            for consumer in self.consumers:
                LifeLog(consumer.topic, consumer.channel).signal_came()
            return self.stop(stop_timeout)
