"""``Log``: the tool's own lines, with ``--log-prefix`` and what they are about."""

from __future__ import annotations

import logging

from nsqclient.runtime.prefixed_logger import PrefixedLogger


class Log(PrefixedLogger):
    """Puts a prefix before every line.

    Args:
        log_prefix: the ``--log-prefix``.
        about: topic and channel, where a line is about one.
    """

    def __init__(self, log_prefix: str, about: str = "") -> None:
        super().__init__(
            logging.getLogger("nsqclient.nsq_to_file"),
            log_prefix + (f"[{about}] " if about else ""))
        self._log_prefix = log_prefix

    def about(self, topic: str, channel: str) -> Log:
        """The same for one topic and channel."""
        return Log(self._log_prefix, f"{topic}/{channel}")
