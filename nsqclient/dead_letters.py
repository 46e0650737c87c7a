"""Messages that are given up: ``DeadLetter``, its JSON form, and callbacks that store it.

If a callback of ``on_giving_up`` raises, the message is requeued.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from nsqclient.display import LONGEST_TEXT, counted, printable
from nsqclient.errors import ConfigError, InvalidMessageError, PublishRejectedError
from nsqclient.log_records import log_fields
from nsqclient.message import Message
from nsqclient.protocol.commands import DeliveredBody
from nsqclient.protocol.names import check_topic, is_valid_name
from nsqclient.runtime.arguments import check_function
from nsqclient.runtime.files import sync_folder

logger: logging.Logger = logging.getLogger("nsqclient.deadletter")

#: The key that marks an envelope, and its value, the version of the format.
_MARK, _VERSION = "dead_letter", 1
#: Characters that are kept from the end of a traceback.
_MOST_TRACEBACK = 4000
#: The same for a traceback that is read; escaped characters are longer.
_MOST_READ = 10 * _MOST_TRACEBACK


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up. Immutable.

    For a bare body, which a dead-letter topic may contain too, the other fields are empty.
    """

    body: bytes = field(repr=False)  #: the original body
    topic: str = ""  #: the topic that it was consumed from
    channel: str = ""
    id: str = ""  #: 16 hex digits
    attempts: int = 0
    timestamp: int = 0  #: time of the publish, in nanoseconds since the epoch
    given_up_at: str = ""  #: date and time in UTC, such as ``2026-01-31T12:00:00.000000Z``
    reason: str = ""  #: one line
    exception: str = ""  #: type and text of the handler's exception
    traceback: str = ""  #: the end of its traceback, about 4000 characters at most
    nsqd_address: str = ""  #: ``host:port`` of its nsqd
    host: str = ""  #: host name of the consumer

    @classmethod
    def of(cls, message: Message, now: float, host: str) -> DeadLetter:
        """Return the dead letter of a message; ``now`` in seconds since the epoch."""
        reason, exception = message.failure or ("", None)
        return cls(
            message.body, message.topic, message.channel, str(message.id), message.attempts,
            message.timestamp, _utc(int(now * 1e9)), printable(reason, LONGEST_TEXT),
            "" if exception is None else _summary(exception),
            "" if exception is None else _tail(exception),
            message.nsqd_address, printable(host, LONGEST_TEXT),
        )

    def facts(self) -> dict[str, Any]:
        """Return the fields without the body, for ``json.dumps``."""
        return {
            "topic": self.topic, "channel": self.channel, "id": self.id,
            "attempts": self.attempts, "timestamp": self.timestamp,
            "published_at": _utc(self.timestamp) if self.timestamp else "",
            "given_up_at": self.given_up_at, "reason": self.reason,
            "exception": self.exception, "traceback": self.traceback,
            "nsqd_address": self.nsqd_address, "host": self.host, "size": len(self.body),
        }

    def to_json(self) -> dict[str, Any]:
        """Return all fields, for ``json.dumps``. A body that is not UTF-8 is in base64."""
        try:
            body, encoding = self.body.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            body, encoding = base64.b64encode(self.body).decode("ascii"), "base64"
        return {**self.facts(), "body": body, "body_encoding": encoding}

    def to_envelope(self) -> bytes:
        """Return the letter as a JSON object in UTF-8, for a dead-letter topic."""
        return json.dumps({_MARK: _VERSION, **self.to_json()}, ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> DeadLetter:
        """Read the body of a message of a dead-letter topic: an envelope, or a bare body.

        Anyone who publishes to the topic can write an envelope, so do not trust its fields.
        """
        if f'"{_MARK}"'.encode() not in data:
            return cls(data)
        try:
            values = json.loads(data.decode("utf-8"))
            if not isinstance(values, dict) or values.get(_MARK) != _VERSION:
                return cls(data)
            body = values["body"].encode("utf-8")
            if values["body_encoding"] == "base64":
                body = base64.b64decode(body, validate=True)
            return cls.from_facts(values, body)
        except (ValueError, KeyError, AttributeError, RecursionError, binascii.Error):
            return cls(data)  # not an envelope of ours

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], body: bytes) -> DeadLetter:
        """Return a letter from JSON fields; invalid fields are empty."""

        def text(name: str, limit: int = LONGEST_TEXT) -> str:
            value = facts.get(name)
            return printable(value, limit) if isinstance(value, str) else ""

        def number(name: str) -> int:
            value = facts.get(name)
            return value if isinstance(value, int) and not isinstance(value, bool) else 0

        topic, trace = text("topic"), facts.get("traceback")
        trace = _printable_lines(trace, _MOST_READ) if isinstance(trace, str) else ""
        return cls(
            body, topic if is_valid_name(topic) else "", text("channel"), text("id"),
            number("attempts"), number("timestamp"), text("given_up_at"), text("reason"),
            text("exception"), trace, text("nsqd_address"), text("host"),
        )


def _utc(nanoseconds: int) -> str:
    try:
        at = datetime.fromtimestamp(nanoseconds // 1000 / 1e6, timezone.utc)
    except (ValueError, OverflowError, OSError):  # an invalid timestamp
        return ""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _summary(exception: BaseException) -> str:
    """Return type and text. The module traceback would raise for some SyntaxErrors."""
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        text = str(exception)
    except Exception:  # raised by the user's class
        text = ""
    return printable(f"{name}: {text}" if text else name, LONGEST_TEXT)


def _tail(exception: BaseException) -> str:
    """Return the last lines of the frames, and the exception's text."""
    try:
        frames = "".join(traceback.format_exception(exception))
        text = "".join(traceback.format_exception_only(exception))
    except Exception:  # raised by the user's class
        return ""
    if not frames.endswith(text):  # a group: its text stands between frames
        return _printable_lines(frames, _MOST_TRACEBACK)
    if len(text) > LONGEST_TEXT:
        return (_printable_lines(frames.removesuffix(text), _MOST_TRACEBACK - LONGEST_TEXT)
                + _lines(text[:LONGEST_TEXT] + "...\n"))
    return _printable_lines(frames, _MOST_TRACEBACK)


def _printable_lines(text: str, limit: int) -> str:
    if len(text) > limit:
        text = "...\n" + text[-limit:].partition("\n")[2]
    return _lines(text)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


class LetterPublisher(Protocol):
    """A Producer, for ``DeadLetterTopic``."""

    def publish(self, topic: str, body: bytes) -> object: ...


def log_giving_up(message: Message) -> None:
    """Log at ERROR that a message is given up, and why. The default of a Consumer."""
    failure = message.failure
    # Without an exception, no handler has seen this delivery.
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
    """Stores each message that is given up as one file, ``TOPIC+CHANNEL+ID+HASH.json``.

    The file has the fields of :class:`DeadLetter`, and is on disk before the message is finished.
    HASH covers the message and its nsqd, because ids of different nsqds may be equal.

    Args:
        path: the directory; created if it does not exist.

    Threads: any; several processes may use one directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def __call__(self, message: Message) -> None:
        """Store one message. Raises OSError if this fails."""
        letter = _letter_of(message)
        path = self._file(_name_of(letter))
        self._write(path, letter.to_envelope())
        sync_folder(str(self._path))
        logger.error("%s/%s: gave up %r (%s): kept as %s", message.topic, message.channel, message,
                     _why(message), path, extra=log_fields(message=message))

    def names(self) -> list[str]:
        """Return the names (``TOPIC+CHANNEL+ID+HASH``) of the dead letters, oldest first."""
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
            ValueError: its file is damaged.
            OSError: it does not exist, or cannot be read.
        """
        data = self._file(name).read_bytes()
        letter = DeadLetter.parse(data)
        if letter.body is data:
            raise ValueError("the file is damaged: it is not a dead letter")
        return letter

    def set_aside(self, name: str) -> Path:
        """Rename a damaged file to ``NAME.json.damaged``; return the path. Raises OSError."""
        path = self._file(name)
        return path.rename(path.with_name(f"{path.name}.damaged"))

    def delete(self, name: str) -> None:
        """Delete a dead letter if it exists. Raises OSError."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._path / f"{name}.json"

    def _write(self, path: Path, data: bytes) -> None:
        # Not the process id: containers that share the directory may have the same one.
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


def _name_of(letter: DeadLetter) -> str:
    origin = f"{letter.topic}+{letter.channel}+{letter.id}"
    message = f"{origin} {letter.nsqd_address} {letter.timestamp} ".encode() + letter.body
    return f"{origin}+{hashlib.sha256(message).hexdigest()[:16]}"


class DeadLetterTopic:
    """Publishes each message that is given up to another topic.

    The message is finished after nsqd has stored the copy, and requeued if the publish fails. The
    copy is a JSON object that :meth:`DeadLetter.parse` reads. If it is too large for nsqd, only the
    body is published, and a WARNING has the other fields. ``nsqd_max_msg_size`` does not limit the
    copy.

    Args:
        producer: a Producer; close it yourself, after the consumer has stopped.
        topic: the topic of the copies.
        body: returns the body to publish for a message, instead of the JSON object.

    Raises:
        InvalidTopicError: the topic's name is invalid.
        ConfigError: ``body`` cannot be called with a message.

    Threads: any.
    """

    def __init__(
        self,
        producer: LetterPublisher,
        topic: str,
        body: Callable[[Message], bytes] | None = None,
    ) -> None:
        if not callable(getattr(producer, "publish", None)):
            raise ConfigError(
                "DeadLetterTopic needs a Producer: write DeadLetterTopic(producer, topic), not"
                f" {producer!r:.80}")
        self._producer = producer
        self._topic = check_topic(topic)
        if body is not None:
            check_function(body, "body", "message")
        self._body = body

    def __call__(self, message: Message) -> None:
        """Publish one message. Raises what the publish raises."""
        if self._body is None:
            self._publish_envelope(message)
        else:
            body = self._body(message)
            self._producer.publish(
                self._topic, DeliveredBody(body) if body is message.body else body)
        logger.error("%s/%s: gave up %r (%s): published to %s", message.topic, message.channel,
                     message, _why(message), self._topic,
                     extra=log_fields(message=message))

    def _publish_envelope(self, message: Message) -> None:
        letter = _letter_of(message)
        envelope = letter.to_envelope()
        for copy in (envelope, DeliveredBody(envelope)):
            try:
                self._producer.publish(self._topic, copy)
                return
            except InvalidMessageError:  # over nsqd_max_msg_size
                pass
            except PublishRejectedError as exc:
                if exc.code != "E_BAD_MESSAGE":
                    raise
                break
        self._producer.publish(self._topic, DeliveredBody(letter.body))
        logger.warning(
            "%r was published to %s without its envelope, which is too large for nsqd (%s); its"
            " other fields: %s", message, self._topic,
            counted(len(envelope), "byte"), json.dumps(letter.facts()),
            extra=log_fields(message=message),
        )
