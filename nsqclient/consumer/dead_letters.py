"""What to do with a message that is given up: ready-made ``on_giving_up`` callbacks.

A callback that raises keeps the message: it is requeued and comes again. What a stop requeues and
timeouts in other processes count as attempts too, so a message may be given up that no handler
has ever failed on; keep what you give up.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nsqclient.consumer.envelope import DeadLetter, shown_id
from nsqclient.display import counted
from nsqclient.errors import ConfigError, InvalidMessageError, PublishRejectedError
from nsqclient.log_fields import log_fields
from nsqclient.message import Message
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.user_functions import check_function

logger = logging.getLogger("nsqclient.deadletter")


class Publisher(Protocol):
    """What ``DeadLetterTopic`` needs of a Producer."""

    def publish(self, topic: str, body: bytes) -> object:
        """Store a message, or raise."""
        ...


def log_giving_up(message: Message) -> None:
    """Log at ERROR which message is given up, and why. The default of a Consumer."""
    failure = message.failure
    # Where nothing was raised, no handler had this delivery.
    attempts = message.attempts - (failure is None or failure.exception is None)
    logger.error(
        "giving up %r after %s (%s); its body is dropped", message, counted(attempts, "attempt"),
        _why(message), extra=log_fields(message=message),
    )


def _why(message: Message) -> str:
    return "no reason given" if message.failure is None else message.failure.reason


def _letter_of(message: Message) -> DeadLetter:
    return DeadLetter.of(message, time.time(), socket.gethostname())


class DeadLetterDirectory:
    """Keeps each message that is given up in a directory of its consumer.

    ``HOST_PORT-ID.body`` holds the body, and ``HOST_PORT-ID.json`` the other fields of
    :class:`DeadLetter`. HOST_PORT is the address of the nsqd that sent the message. The JSON is
    written last, so a body without it is not complete. Both are on disk before the message is
    finished. An id that does not consist of letters and digits is written in hex.

    Args:
        path: the directory; created if it does not exist.

    Threads: any; several processes may use one directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def __call__(self, message: Message) -> None:
        """Keep one message. Raises OSError when the disk does not take it."""
        name = f"{message.nsqd_address.replace(':', '_')}-{shown_id(message.id)}"
        self._write(f"{name}.body", message.body)
        self._write(f"{name}.json", json.dumps(_letter_of(message).facts()).encode())
        self._sync_names()
        logger.error("gave up %r (%s): kept as %s", message, _why(message),
                     self._path / f"{name}.body", extra=log_fields(message=message))

    def names(self) -> list[str]:
        """Return the names (``HOST_PORT-ID``) of the letters that are kept, the oldest first."""
        found = []
        for path in self._path.glob("*.json"):
            try:
                if path.with_suffix(".body").exists():
                    found.append((path.stat().st_mtime_ns, path.stem))
            except FileNotFoundError:
                pass  # deleted meanwhile
        return [name for _, name in sorted(found)]

    def read(self, name: str) -> DeadLetter:
        """Return a letter.

        Raises:
            FileNotFoundError: there is no letter with this name.
            ValueError: its JSON file is damaged.
            OSError: it cannot be read.
        """
        facts = json.loads((self._path / f"{name}.json").read_bytes())
        if not isinstance(facts, dict):
            raise ValueError("no JSON object")
        return DeadLetter.from_facts(facts, (self._path / f"{name}.body").read_bytes())

    def delete(self, name: str) -> None:
        """Delete a letter, if it is there. Raises OSError."""
        # In this order: a body alone may be a letter that is being written, so it is left alone,
        # while the JSON file alone is certainly the rest of one.
        (self._path / f"{name}.body").unlink(missing_ok=True)
        (self._path / f"{name}.json").unlink(missing_ok=True)

    def delete_remains(self) -> None:
        """Delete what was left of letters by a ``delete`` that was interrupted. Raises OSError."""
        for path in self._path.glob("*.json"):
            if not path.with_suffix(".body").exists():
                path.unlink(missing_ok=True)

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

    The message is finished only after nsqd has stored the copy; if the publish fails, it is
    requeued. The copy is a JSON object with the body and its other fields, which
    :meth:`DeadLetter.parse` reads. If nsqd would reject the object as too large, only the body is
    published, and a WARNING has the other fields.

    Args:
        producer: a Producer; close it yourself, after the consumer has stopped.
        topic: the topic of the copies.
        body: a function that returns what to publish for a message.
        envelope: False: publish the body as it is.

    Raises:
        InvalidTopicError: the topic's name is invalid.
        ConfigError: ``body`` cannot be called with a message, or ``envelope`` is not a bool.

    Threads: any.
    """

    def __init__(
        self,
        producer: Publisher,
        topic: str,
        body: Callable[[Message], bytes] | None = None,
        *,
        envelope: bool = True,
    ) -> None:
        self._producer = producer
        self._topic = check_topic(topic)
        if body is not None:
            check_function(body, "body", "message")
        if not isinstance(envelope, bool):
            raise ConfigError(f"envelope must be True or False, not {envelope!r}")
        self._body = body
        self._envelope = envelope

    def __call__(self, message: Message) -> None:
        """Publish one message. Raises what the publish raises."""
        if self._body is not None:
            self._producer.publish(self._topic, self._body(message))
        elif self._envelope:
            self._publish_envelope(message)
        else:
            self._producer.publish(self._topic, message.body)
        logger.error("gave up %r (%s): published to %s", message, _why(message), self._topic,
                     extra=log_fields(message=message))

    def _publish_envelope(self, message: Message) -> None:
        letter = _letter_of(message)
        envelope = letter.to_envelope()
        try:
            self._producer.publish(self._topic, envelope)
            return
        except InvalidMessageError:  # nsqd_max_msg_size
            pass
        except PublishRejectedError as exc:
            if exc.code != "E_BAD_MESSAGE":  # the limit of this nsqd is lower
                raise
        self._producer.publish(self._topic, letter.body)
        logger.warning(
            "%r was published to %s without its envelope, which is too large (%s, see"
            " nsqd_max_msg_size); its other fields: %s", message, self._topic,
            counted(len(envelope), "byte"), json.dumps(letter.facts()),
            extra=log_fields(message=message),
        )
