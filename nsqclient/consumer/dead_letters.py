"""What to do with a message that is given up: ready-made ``on_giving_up`` callbacks.

A callback that raises keeps the message: it is requeued and comes again. What a stop requeues and
timeouts in other processes count as attempts too, so a message may be given up that no handler
has ever failed on; keep what you give up.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nsqclient.consumer.envelope import DeadLetter, check_key
from nsqclient.display import counted
from nsqclient.errors import ConfigError, InvalidMessageError, PublishRejectedError
from nsqclient.log_fields import log_fields
from nsqclient.message import Message
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.user_functions import check_function

logger: logging.Logger = logging.getLogger("nsqclient.deadletter")


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
        "%s/%s: giving up %r after %s (%s); its body is dropped", message.topic,
        message.channel, message, counted(attempts, "attempt"), _why(message),
        extra=log_fields(message=message),
    )


def _why(message: Message) -> str:
    return "no reason given" if message.failure is None else message.failure.reason


def _letter_of(message: Message) -> DeadLetter:
    return DeadLetter.of(message, time.time(), socket.gethostname())


class DeadLetterDirectory:
    """Keeps each message that is given up in a directory of its consumer.

    A dead letter is one file, ``TOPIC+CHANNEL+ID+HASH.json``, with the fields of
    :class:`DeadLetter` and the body. HASH is made of the message itself and of the nsqd that sent
    it, because the ids of two topics, channels or nsqds may be the same: two messages never have
    the same file. The file is on disk before the message is finished. An id that does not consist
    of letters and digits is written in hex.

    Args:
        path: the directory; created if it does not exist.

    Threads: any; several processes may use one directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def __call__(self, message: Message) -> None:
        """Keep one message. Raises OSError when the disk does not take it."""
        letter = _letter_of(message)
        path = self._file(_name_of(letter))
        self._write(path, letter.to_envelope())
        self._sync_names()
        logger.error("%s/%s: gave up %r (%s): kept as %s", message.topic, message.channel, message,
                     _why(message), path, extra=log_fields(message=message))

    def names(self) -> list[str]:
        """Return the names (``TOPIC+CHANNEL+ID+HASH``) of the dead letters, the oldest first."""
        found = []
        for path in self._path.glob("*.json"):
            try:
                found.append((path.stat().st_mtime_ns, path.stem))
            except FileNotFoundError:
                pass  # deleted meanwhile
        return [name for _, name in sorted(found)]

    def read(self, name: str) -> DeadLetter:
        """Return a dead letter.

        Raises:
            FileNotFoundError: there is none with this name.
            ValueError: its file is damaged.
            OSError: it cannot be read.
        """
        data = self._file(name).read_bytes()
        letter = DeadLetter.parse(data)
        if letter.body is data:
            raise ValueError("the file is damaged: it is no dead letter")
        return letter

    def set_aside(self, name: str) -> Path:
        """Rename a file that is damaged, so that it is not read again. Raises OSError.

        Returns: its new path, ``NAME.json.damaged``.
        """
        path = self._file(name)
        return path.rename(path.with_name(f"{path.name}.damaged"))

    def delete(self, name: str) -> None:
        """Delete a dead letter, if it is there. Raises OSError."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._path / f"{name}.json"

    def _write(self, path: Path, data: bytes) -> None:
        # Random: processes of several containers, which have the same ids, may use the directory.
        temporary = self._path / f".{os.urandom(16).hex()}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
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


def _name_of(letter: DeadLetter) -> str:
    """Return the name of a dead letter, which no other message has."""
    origin = f"{letter.topic}+{letter.channel}+{letter.id}"
    message = f"{origin} {letter.nsqd_address} {letter.timestamp} ".encode() + letter.body
    return f"{origin}+{hashlib.sha256(message).hexdigest()[:16]}"


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
        key: a secret of at least 16 bytes that signs the JSON objects. A replay with the same key
            knows that the consumer has written them, and publishes to the topics that they name.

    Raises:
        InvalidTopicError: the topic's name is invalid.
        ConfigError: ``body`` cannot be called with a message, ``envelope`` is not a bool, or
            ``key`` is too short, or given where no envelope is published.

    Threads: any.
    """

    def __init__(
        self,
        producer: Publisher,
        topic: str,
        body: Callable[[Message], bytes] | None = None,
        *,
        envelope: bool = True,
        key: str | bytes = b"",
    ) -> None:
        if not callable(getattr(producer, "publish", None)):
            raise ConfigError(
                "DeadLetterTopic needs a Producer: write DeadLetterTopic(producer, topic), not"
                f" {producer!r:.80}")
        self._producer = producer
        self._topic = check_topic(topic)
        if body is not None:
            check_function(body, "body", "message")
        if not isinstance(envelope, bool):
            raise ConfigError(f"envelope must be True or False, not {envelope!r}")
        if key and (body is not None or not envelope):
            raise ConfigError("key signs envelopes: leave out body, and envelope=False")
        self._body = body
        self._envelope = envelope
        self._key = check_key(key) if key else b""

    def __call__(self, message: Message) -> None:
        """Publish one message. Raises what the publish raises."""
        if self._body is not None:
            self._producer.publish(self._topic, self._body(message))
        elif self._envelope:
            self._publish_envelope(message)
        else:
            self._producer.publish(self._topic, message.body)
        logger.error("%s/%s: gave up %r (%s): published to %s", message.topic, message.channel,
                     message, _why(message), self._topic,
                     extra=log_fields(message=message))

    def _publish_envelope(self, message: Message) -> None:
        letter = _letter_of(message)
        envelope = letter.to_envelope(self._key)
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
