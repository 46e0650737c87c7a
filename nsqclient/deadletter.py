"""What to do with a message that is given up: ready-made ``on_giving_up`` callbacks.

A callback that raises keeps the message: it is requeued and comes again. Hand-backs at a stop and
timeouts in other processes count as attempts too, so a message may be given up that no handler
has ever failed on; keep what you give up.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nsqclient.message import Message
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.user_functions import check_function

logger = logging.getLogger("nsqclient.deadletter")


class Publisher(Protocol):
    """What ``DeadLetterTopic`` needs of a Producer."""

    def publish(self, topic: str, body: bytes) -> object:
        """Store a message, or raise."""
        ...


def log_giving_up(message: Message) -> None:
    """Say in the log, at ERROR, what is given up. The default of a Consumer."""
    logger.error(
        "giving up %r after %s; its body is dropped", message,
        counted(message.attempts - 1, "attempt"),
    )


class DeadLetterDirectory:
    """Writes each message that is given up into a directory of its consumer.

    ``HOST_PORT-ID.body`` holds the body, ``HOST_PORT-ID.json`` what nsqd said about it, where
    HOST_PORT is the nsqd that sent it. The JSON is written last, so a body without it is not
    complete. Both are on the disk before the message is finished. An id that is not made of
    letters and digits is shown in hex.

    Args:
        path: the directory; it is made if it is missing.

    Threads: any.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def __call__(self, message: Message) -> None:
        """Keep one message. Raises OSError when the disk does not take it."""
        # Other servers have other ids, perhaps with slashes in them.
        shown = message.id.decode("ascii") if message.id.isalnum() else message.id.hex()
        name = f"{message.nsqd_address.replace(':', '_')}-{shown}"
        metadata = {
            "id": shown,
            "timestamp": message.timestamp,
            "attempts": message.attempts,
            "nsqd_address": message.nsqd_address,
            "size": len(message.body),
        }
        self._write(f"{name}.body", message.body)
        self._write(f"{name}.json", json.dumps(metadata).encode())
        self._sync_names()
        logger.error("gave up %r: kept as %s", message, self._path / f"{name}.body")

    def _write(self, name: str, data: bytes) -> None:
        # A name of its own: the same message may be given up twice at once.
        temporary = self._path / f".{name}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _sync_names(self) -> None:
        """Bring the directory itself to the disk."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DeadLetterTopic:
    """Publishes each message that is given up to another topic.

    The message is finished only after nsqd has stored the copy; when the publish fails, it is
    requeued.

    Args:
        producer: a Producer; yours to close, after the consumer has stopped.
        topic: where to; the body is published as it is.
        body: makes the body to publish from the message, where more than the body is wanted.

    Threads: any.
    """

    def __init__(
        self,
        producer: Publisher,
        topic: str,
        body: Callable[[Message], bytes] = lambda message: message.body,
    ) -> None:
        self._producer = producer
        self._topic = check_topic(topic)
        check_function(body, "body", "message")
        self._body = body

    def __call__(self, message: Message) -> None:
        """Publish one message. Raises what the publish raises."""
        self._producer.publish(self._topic, self._body(message))
        logger.error("gave up %r: published to %s", message, self._topic)
