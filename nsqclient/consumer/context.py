"""``ConsumerContext``: the values that all parts of one consumer share, and how they log."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqclient.errors import known_failure
from nsqclient.config import Config
from nsqclient.consumer.retry import show_exception
from nsqclient.log_records import log_fields
from nsqclient.runtime.log_lines import PrefixedLogger
from nsqclient.runtime.timer import Timer


@dataclass(frozen=True)
class ConsumerContext:
    """The names, options, threads and the log of one consumer. Threads: any."""

    topic: str
    channel: str
    config: Config
    timer: Timer
    #: Runs a task that may block on a background thread.
    run_in_background: Callable[[Callable[[], None]], None]
    log: PrefixedLogger  #: prefixes ``topic/channel:``


def consumer_log(topic: str, channel: str = "") -> PrefixedLogger:
    name = f"{topic}/{channel}" if channel else topic
    return PrefixedLogger(logging.getLogger("nsqclient.consumer"), f"{name}: ",
                          log_fields(topic=topic, channel=channel))


#: Frames of this folder are left out of tracebacks of user code.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _of_user(error: BaseException) -> tuple[type[BaseException], BaseException, Any]:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


def log_failure(
    log: PrefixedLogger, error: BaseException, text: str, *args: object,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log an exception of user code at ERROR.

    If the cause is known, one line says what to do and the traceback is logged at DEBUG.
    """
    known = known_failure(error)
    if known:
        log.error(f"{text}: %s", *args, known, extra=extra)
        log.debug(text, *args, exc_info=_of_user(error), extra=extra)
    else:
        log.error(text, *args, exc_info=_of_user(error), extra=extra)


def log_retry(
    log: PrefixedLogger, error: BaseException, text: str, *args: object,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log a failure that the retry policy expects, in one line at WARNING. Traceback at DEBUG."""
    known = known_failure(error)
    reason = f"{type(error).__name__}: {known}" if known else show_exception(error)
    log.warning(f"{text}: %s", *args, reason, extra=extra)
    log.debug(text, *args, exc_info=_of_user(error), extra=extra)
