"""``DeadLetter``: a message that was given up, and what is known about it; its form as JSON.

The envelope of a dead-letter topic and the JSON file of a dead-letter directory are written and
read here. No socket, thread or log.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from nsqclient.errors import ConfigError
from nsqclient.message import Message
from nsqclient.protocol.names import is_valid_name
from nsqclient.sanitize import LONGEST_TEXT, printable

#: The key that an envelope has, and its value: the version of the form.
_MARK, _VERSION = "dead_letter", 1
#: What is added to an envelope with a key.
_SIGNATURE = b', "hmac": "%b"'
#: Bytes of the shortest key.
_LEAST_KEY = 16
#: Characters of a traceback that are kept, from its end.
_MOST_TRACEBACK = 4000
#: The same where it is read: escaped characters take more.
_MOST_READ = 10 * _MOST_TRACEBACK


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up. Immutable.

    Of a bare body, which a dead-letter topic may have as well, all but ``body`` is empty.
    """

    body: bytes = field(repr=False)  #: the original one
    topic: str = ""  #: that it was consumed from; empty where this is not known
    channel: str = ""
    id: str = ""  #: 16 hex digits
    attempts: int = 0
    timestamp: int = 0  #: when it was published, in nanoseconds since the epoch
    given_up_at: str = ""  #: date and time in UTC, such as ``2026-01-31T12:00:00.000000Z``
    reason: str = ""  #: one line
    exception: str = ""  #: type and text of what the handler raised; empty where nothing was
    traceback: str = ""  #: the last 4000 characters of its traceback
    nsqd_address: str = ""  #: ``host:port`` of the nsqd that it came from
    host: str = ""  #: of the consumer that gave it up

    @classmethod
    def of(cls, message: Message, now: float, host: str) -> DeadLetter:
        """Return the dead letter of a message that is given up.

        Args:
            now: seconds since the epoch.
            host: name of this machine.
        """
        reason, exception = message.failure or ("", None)
        return cls(
            message.body, message.topic, message.channel, shown_id(message.id), message.attempts,
            message.timestamp, _utc(int(now * 1e9)), printable(reason, LONGEST_TEXT),
            "" if exception is None else _summary(exception),
            "" if exception is None else _tail(exception),
            message.nsqd_address, printable(host, LONGEST_TEXT),
        )

    def facts(self) -> dict[str, Any]:
        """Return everything but the body, for ``json.dumps``."""
        return {
            "topic": self.topic, "channel": self.channel, "id": self.id,
            "attempts": self.attempts, "timestamp": self.timestamp,
            "published_at": _utc(self.timestamp) if self.timestamp else "",
            "given_up_at": self.given_up_at, "reason": self.reason,
            "exception": self.exception, "traceback": self.traceback,
            "nsqd_address": self.nsqd_address, "host": self.host, "size": len(self.body),
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything, for ``json.dumps``.

        ``body`` is text where the body is UTF-8, else base64; ``body_encoding`` says which.
        """
        try:
            body, encoding = self.body.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            body, encoding = base64.b64encode(self.body).decode("ascii"), "base64"
        return {**self.facts(), "body": body, "body_encoding": encoding}

    def to_envelope(self, key: str | bytes = b"") -> bytes:
        """Return the letter as a JSON object in UTF-8, for a dead-letter topic.

        Args:
            key: signs the object, in its last field ``hmac`` (HMAC-SHA256, in hex).

        Raises:
            ConfigError: the key is too short.
        """
        data = json.dumps({_MARK: _VERSION, **self.to_json()}, ensure_ascii=False).encode()
        if not key:
            return data
        return data[:-1] + _SIGNATURE % _signature(data, check_key(key)) + b"}"

    @classmethod
    def parse(cls, data: bytes, key: str | bytes = b"") -> DeadLetter:
        """Read the body of a message of a dead-letter topic: an envelope, or a bare body.

        Without a key, whoever publishes to the topic, or has published a message that is there as
        a bare body, may have written what looks like an envelope: do not act on what it says.

        Args:
            key: that of the ``DeadLetterTopic``; what it has not signed is a bare body.

        Raises:
            ConfigError: the key is too short.
        """
        if key and not _is_signed(data, check_key(key)):
            return cls(data)
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
            return cls(data)  # of no envelope of ours

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], body: bytes) -> DeadLetter:
        """Return the letter of a body and its facts; what is missing, or odd, is empty."""

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


def check_key(key: str | bytes) -> bytes:
    """Return the key of envelopes as bytes.

    Raises:
        ConfigError: it has less than 16 bytes, or is no text and no bytes.
    """
    if not isinstance(key, (str, bytes)):
        raise ConfigError("the key of dead letters must be a str or bytes")
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    if len(data) < _LEAST_KEY:
        raise ConfigError(f"the key of dead letters must have at least {_LEAST_KEY} bytes")
    return data


def _signature(envelope: bytes, key: bytes) -> bytes:
    return hmac.new(key, envelope, "sha256").hexdigest().encode()


def _is_signed(data: bytes, key: bytes) -> bool:
    """Return whether an envelope ends with the right signature of what stands before it."""
    size = len(_SIGNATURE % (b"0" * 64)) + 1
    rest = data[:-size] + b"}"
    return hmac.compare_digest(data, rest[:-1] + _SIGNATURE % _signature(rest, key) + b"}")


def shown_id(message_id: bytes) -> str:
    """Return an id as text; an id that is not made of letters and digits in hex."""
    # Other servers have other ids, perhaps with slashes in them.
    return message_id.decode("ascii") if message_id.isalnum() else message_id.hex()


def _utc(nanoseconds: int) -> str:
    try:
        at = datetime.fromtimestamp(nanoseconds // 1000 / 1e6, timezone.utc)
    except (ValueError, OverflowError, OSError):  # of an odd server
        return ""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _summary(exception: BaseException) -> str:
    """Return type and text, as the last line of a traceback has them."""
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        text = str(exception)
    except Exception:  # of the user's class
        text = ""
    return printable(f"{name}: {text}" if text else name, LONGEST_TEXT)


def _tail(exception: BaseException) -> str:
    """Return the end of a traceback, from the beginning of a line on."""
    try:
        whole = "".join(traceback.format_exception(exception))
    except Exception:  # of the user's class
        return ""
    return _printable_lines(whole, _MOST_TRACEBACK)


def _printable_lines(text: str, limit: int) -> str:
    if len(text) > limit:
        text = "...\n" + text[-limit:].partition("\n")[2]
    return "\n".join(map(printable, text.split("\n")))
