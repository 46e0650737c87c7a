"""The ConsumerContext of a part of a consumer that is tested alone."""

from collections.abc import Callable
from typing import Any

from nsqclient.config import Config
from nsqclient.consumer.context import ConsumerContext, consumer_log
from tests.support.virtual_time import VirtualTimer


def make_context(
    config: Config | None = None, timer: Any = None,
    run_in_background: Callable[[Callable[[], None]], None] = lambda task: task(),
    topic: str = "t", channel: str = "c",
) -> ConsumerContext:
    return ConsumerContext(
        topic, channel, Config() if config is None else config,
        VirtualTimer() if timer is None else timer, run_in_background,
        consumer_log(topic, channel))
