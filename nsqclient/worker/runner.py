"""``run_worker``: runs the handlers of a command until a signal. ``WorkerLog``: its log records."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from nsqclient.consumer.context import consumer_log
from nsqclient.display import counted
from nsqclient.log_records import JsonFormatter, LineFormatter
from nsqclient.metrics import check_prometheus
from nsqclient.runtime import process_signals
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.version import __version__
from nsqclient.worker.group import ConsumerGroup, check_group, stop_error
from nsqclient.worker.lifeline import Lifeline, attach
from nsqclient.worker.loading import UsageError
from nsqclient.worker.middleware import LogContext
from nsqclient.worker.status_server import (
    ProcessState, Response, live_response, ready_response, serve_status,
)
from nsqclient.worker.supervisor import FAILED, SourceWatch, Supervisor

if TYPE_CHECKING:
    from nsqclient.metrics.prometheus import WorkerMetrics

_DATE = "%Y/%m/%d %H:%M:%S"
#: Also for the supervisor, which imports no handlers.
_OURS = logging.getLogger("nsqclient")


class WorkerLog:
    """Shows the log records of a worker on stderr, unless the program does so itself.

    Until the handlers are imported it shows only the library's records: a handler of the root
    logger would disable a ``logging.basicConfig``. Then it shows all records that no handler of the
    program takes.

    ``level``: None: INFO, or as the program has configured it.
    """

    def __init__(self, level: int | None, as_json: bool, process: str) -> None:
        self._level = logging.INFO if level is None else level
        self._is_level_given = level is not None
        self._handler = _WorkerHandler(sys.stderr)
        shown = f"[{process}] ".replace("%", "%%") if process else ""
        self._handler.setFormatter(
            JsonFormatter(process) if as_json
            else LineFormatter(f"%(asctime)s %(levelname)s {shown}%(message)s", _DATE))
        self._former = _OURS.level
        self._former_root: int | None = None

    def __enter__(self) -> WorkerLog:
        _OURS.addHandler(self._handler)
        _OURS.setLevel(self._level)
        return self

    def on_imported(self) -> None:
        """Show the records of all loggers from now on."""
        root = logging.getLogger()
        _OURS.removeHandler(self._handler)
        if root.handlers:  # the program has configured logging
            if not self._is_level_given and _OURS.level == self._level:
                _OURS.setLevel(self._former)
            return
        self._former_root = root.level
        root.setLevel(self._level)
        root.addHandler(self._handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        root = logging.getLogger()
        for logger in (_OURS, root):
            logger.removeHandler(self._handler)
        _OURS.setLevel(self._former)
        if self._former_root is not None:
            root.setLevel(self._former_root)


class _WorkerHandler(logging.StreamHandler):  # type: ignore[type-arg] # takes none on 3.10
    """Leaves out records that another handler takes, and adds the fields of LogContext."""

    def handle(self, record: logging.LogRecord) -> bool:
        if self._is_taken(record):
            return False
        if LogContext.is_set():
            LogContext.filter(record)
        return bool(super().handle(record))

    def _is_taken(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            for each in logger.handlers:
                if (each is not self and not isinstance(each, logging.NullHandler)
                        and record.levelno >= each.level):
                    return True
            logger = logger.parent if logger.propagate else None
        return False


def report_as_json(line: str, level: int = logging.INFO, process: str = "") -> None:
    """Write a line to stderr as a record of the log."""
    record = logging.makeLogRecord({
        "name": "nsqclient.worker", "msg": line, "levelno": level,
        "levelname": logging.getLevelName(level), "process": os.getpid(),
        "threadName": threading.current_thread().name})
    sys.stderr.write(JsonFormatter(process).format(record) + "\n")
    sys.stderr.flush()


#: Seconds between two reports of a child, and between two checks of signals.
_INTERVAL = 0.5
#: Seconds without a report after which a process hangs. After so long nsqd has closed its
#: connections as well: two heartbeats without an answer, 30 s each by default.
HANG_TIMEOUT = 60.0
#: A busy machine does not delay a report for as long.
_LEAST_HANG_TIMEOUT = 5.0
_MOST_PROCESSES = 1024

#: Makes the consumers; gets the exporter of metrics, or None.
Build = Callable[["WorkerMetrics | None"], ConsumerGroup]


@dataclass(frozen=True)
class WorkerOptions:
    """The values of a command's flags. Immutable. Raises UsageError."""

    processes: int = 0  #: under a supervisor; 0: the handlers run in this process
    reload_folder: Path | None = None  #: source files that a supervisor watches; None: no files
    health_address: str = ""
    metrics_address: str = ""
    is_check: bool = False
    stop_timeout: float = 25.0  #: seconds
    hang_timeout: float = HANG_TIMEOUT  #: seconds without a report of a process; 0: no limit
    log_level: int | None = None  #: None: INFO, or as the program configures logging
    is_log_json: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.processes <= _MOST_PROCESSES:
            raise UsageError(
                f"--processes must be from 1 to {_MOST_PROCESSES}, not {self.processes}")
        if not 0 <= self.stop_timeout < threading.TIMEOUT_MAX:
            raise UsageError(f"--stop-timeout must be 0 s or more, not {self.stop_timeout}")
        if self.hang_timeout and not _LEAST_HANG_TIMEOUT <= self.hang_timeout < math.inf:
            raise UsageError(
                f"--hang-timeout must be {_LEAST_HANG_TIMEOUT:g} s or more, or 0 for no limit,"
                f" not {self.hang_timeout}")


def run_worker(
    build: Build,
    options: WorkerOptions,
    report: Callable[[str], None],
) -> int:
    """Run a worker until SIGINT or SIGTERM; return the exit status. Main thread only.

    Args:
        build: imports the handlers and creates their consumers, in each process that consumes.
        report: called with lines for the user, unless the log is JSON.

    Returns: 0; 1 if a message was abandoned or a check failed; 3 if a child died at once five times
    in a row; 128 plus the number of a second signal; the status of a first child that could not
    start.

    Raises:
        ConfigError, InvalidTopicError, InvalidChannelError: nothing was started.
        KeyboardInterrupt: a second Ctrl-C interrupted the stop, without a supervisor.
    """
    lifeline = attach()
    if lifeline is not None:
        lifeline.watch(options.stop_timeout)
    process = "" if lifeline is None else lifeline.role
    if options.is_log_json:
        report = partial(report_as_json, process=process)
    if process:  # the supervisor forwards Ctrl-C as SIGTERM
        process_signals.take(signal.SIGINT, process_signals.disregard)
        multiprocessing.current_process().name = process  # the processName of log records
    with WorkerLog(options.log_level, options.is_log_json, process) as log:
        if not options.is_check and not process and (options.processes or options.reload_folder):
            return _supervise(options, report)
        metrics = _make_metrics(options)
        group = build(metrics)
        log.on_imported()
        if options.is_check:
            is_well = check_group(group, report)
            for consumer in group.consumers:
                consumer.stop()
            if not is_well:
                return FAILED
            report("OK     everything is in order")
            return 0
        if process:
            return _consume(group, options, report, lifeline)

        def states() -> dict[str, ProcessState]:
            return {"1": ProcessState(group.health(), metrics and metrics.snapshot())}

        with _serve_status(options, states, lambda: True, 1, metrics) as addresses:
            return _consume(group, options, report, lifeline, addresses)


def _make_metrics(options: WorkerOptions) -> WorkerMetrics | None:
    if not options.metrics_address:
        return None
    check_prometheus("--metrics-address")
    from nsqclient.metrics.prometheus import WorkerMetrics

    return WorkerMetrics()


def _supervise(options: WorkerOptions, report: Callable[[str], None]) -> int:
    processes, folder = max(1, options.processes), options.reload_folder
    supervisor = Supervisor(processes, options.stop_timeout, options.hang_timeout,
                            None if folder is None else SourceWatch(folder))
    metrics = _make_metrics(options)
    with _serve_status(
        options, supervisor.states, supervisor.is_live, processes, metrics
    ) as addresses:
        def announce() -> None:
            report(f"supervisor with pid {os.getpid()}:"
                   f" {counted(processes, 'process', 'processes')};"
                   " SIGHUP replaces them one by one")
            for line in addresses:
                report(line)

        return supervisor.run(announce)


def _serve_status(
    options: WorkerOptions,
    states: Callable[[], dict[str, ProcessState]],
    is_live: Callable[[], bool],
    processes: int,
    metrics: WorkerMetrics | None,
) -> AbstractContextManager[list[str]]:
    def scrape() -> Response:
        assert metrics is not None
        snapshots = {name: state.metrics for name, state in states().items()
                     if state.metrics is not None}
        return Response(200, *metrics.render(snapshots))

    return serve_status(options.health_address, options.metrics_address, {
        "/live": lambda: live_response(is_live()),
        "/ready": lambda: ready_response(states(), processes),
    }, scrape)


def _consume(
    group: ConsumerGroup,
    options: WorkerOptions,
    report: Callable[[str], None],
    lifeline: Lifeline | None,
    addresses: Iterable[str] = (),
) -> int:
    """Start the consumers, wait for a signal, stop them; return the exit status."""

    def send_report() -> None:
        if lifeline is not None:
            metrics = None if group.metrics is None else group.metrics.snapshot()
            lifeline.report(consumers=group.health(), metrics=metrics)

    second = Second.FORMER
    if lifeline is not None:
        # systemd, terminals and the supervisor may all signal a child.
        second = Second.NOTED
        process_signals.ignore_at_exit()
        process_signals.take(signal.SIGHUP, process_signals.disregard)  # the terminal has closed
    with Signals(second) as signals:
        if lifeline is None or lifeline.is_first:
            # Inside: a reader of these lines may send a signal at once.
            report(f"nsqclient {__version__}")
            for line in [*group.banner(), *addresses]:
                report(line)
            report("Ctrl-C stops")
        group.start()
        send_report()
        while not signals.wait(_INTERVAL):
            send_report()
        for consumer in group.consumers:
            consumer_log(consumer.topic, consumer.channel).info(
                "stopping: received a signal")
        error = stop_error(group.stop(options.stop_timeout))
        if lifeline is not None:  # a signal that comes later must not change the exit status
            for number in process_signals.SIGNALS:
                process_signals.take(number, process_signals.disregard)
    if error:
        report(error)
        return FAILED
    return 0
