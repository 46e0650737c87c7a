"""``ConsumerContext``: what all parts of one consumer use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsqclient.config import Config
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
    log: PrefixedLogger
