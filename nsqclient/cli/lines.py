"""Messages as lines: ``Renderer``, which makes them, and ``body_of``, which reads JSON lines. Pure.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import string
import zlib
from collections.abc import Callable
from datetime import datetime, timezone

from nsqclient import Message

#: What ``--format`` may name, and what it stands for.
FIELDS: dict[str, tuple[str, Callable[[str, Message, bytes], bytes]]] = {
    "body": ("the body, unchanged", lambda topic, message, body: body),
    "base64": ("the body in base64", lambda topic, message, body: base64.b64encode(body)),
    "size": ("size of the body in bytes", lambda topic, message, body: b"%d" % len(body)),
    "topic": ("the topic", lambda topic, message, body: topic.encode()),
    "id": ("the message id", lambda topic, message, body: str(message.id).encode()),
    "timestamp": ("the timestamp of the message, in nanoseconds since 1970",
                  lambda topic, message, body: b"%d" % message.timestamp),
    "time": ("the timestamp as date and time (UTC)",
             lambda topic, message, body: show_time(message.timestamp).encode()),
    "attempts": ("the number of delivery attempts",
                 lambda topic, message, body: b"%d" % message.attempts),
    "nsqd": ("the address of the nsqd", lambda topic, message, body: message.nsqd_address.encode()),
}

#: The forms of files with messages: bodies, or JSON objects.
FORMATS = ("lines", "jsonl")

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def show_time(nanoseconds: int) -> str:
    """Write nanoseconds since 1970 as ``2026-01-31T12:00:00.000000Z``."""
    at = datetime.fromtimestamp(nanoseconds // 1000 / 1e6, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unescape(text: str) -> bytes:
    """Replace ``\\n``, ``\\t``, ``\\r``, ``\\0``, ``\\\\`` and ``\\xHH``; a lone ``\\`` stays.

    Raises:
        ValueError: another letter stands behind a backslash.
    """
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)]).decode("utf-8", "surrogateescape")
        if code not in _ESCAPES:
            raise ValueError(f"unknown escape \\{code}: use \\n \\t \\r \\0 \\xHH or \\\\")
        return _ESCAPES[code]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", replace, text).encode("utf-8", "surrogateescape")


#: A format with its fields found: plain bytes, each with the field behind it ("" for none).
Template = list[tuple[bytes, str]]


def parse_format(text: str) -> Template:
    """Read a format such as ``{time} {id} {body}``; ``{{`` is a brace.

    Raises:
        ValueError: an unknown field, or braces that do not match.
    """
    parts = []
    for plain, field, spec, conversion in string.Formatter().parse(text):
        if field is not None and (field not in FIELDS or spec or conversion):
            raise ValueError(f"unknown field {{{field}}}: use {', '.join(FIELDS)}")
        parts.append((unescape(plain), field or ""))
    return parts


class Renderer:
    """Makes the bytes that are written for a message.

    Args:
        template: of ``--format``; None: the body alone.
        as_json: one JSON object instead.
        gunzip: show bodies that are gzip as what they hold.
        print_topic: put ``TOPIC | `` in front.
        end: what follows each message.
    """

    def __init__(
        self, template: Template | None = None, *, as_json: bool = False, gunzip: bool = False,
        print_topic: bool = False, end: bytes = b"\n",
    ) -> None:
        self._template = template
        self._as_json = as_json
        self._gunzip = gunzip
        self._print_topic = print_topic
        self._end = end

    def __call__(self, topic: str, message: Message) -> bytes:
        """Render one message of a topic."""
        body = gunzipped(message.body) if self._gunzip else message.body
        if self._as_json:
            shown = _json_line(topic, message, body)
        elif self._template is not None:
            shown = b"".join(
                plain + (FIELDS[field][1](topic, message, body) if field else b"")
                for plain, field in self._template
            )
        else:
            shown = body
        prefix = f"{topic} | ".encode() if self._print_topic else b""
        return prefix + shown + self._end


def gunzipped(body: bytes) -> bytes:
    """The content of a gzip body; another body, or a broken one, as it is."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body


def _json_line(topic: str, message: Message, body: bytes) -> bytes:
    shown: dict[str, object] = {
        "topic": topic,
        "id": str(message.id),
        "timestamp": message.timestamp,
        "attempts": message.attempts,
        "nsqd": message.nsqd_address,
    }
    try:
        shown["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        shown["body_base64"] = base64.b64encode(body).decode("ascii")
    return json.dumps(shown, ensure_ascii=False).encode()


def body_of(line: bytes) -> bytes:
    """Return the body in a JSON line, as ``nsq_tail --json`` and ``nsq_to_file`` write it.

    Raises:
        ValueError: it is no such line.
    """
    try:
        record = json.loads(line)
    except ValueError as exc:
        raise ValueError(f"no JSON: {exc}") from None
    record = record if isinstance(record, dict) else {}
    if isinstance(record.get("body"), str):
        return str(record["body"]).encode()
    if isinstance(record.get("body_base64"), str):
        return base64.b64decode(record["body_base64"], validate=True)
    raise ValueError("it must be a JSON object with the text body, or body_base64")
