"""Messages as lines, and fields of JSON bodies. Pure."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import re
import string
import zlib
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from nsqclient import InvalidMessageError, Message, PartitionError

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
    at = datetime.fromtimestamp(nanoseconds // 1000 / 1e6, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unescape(text: str) -> bytes:
    """Replace ``\\n``, ``\\t``, ``\\r``, ``\\0``, ``\\\\`` and ``\\xHH``. Raises ValueError."""
    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)]).decode("utf-8", "surrogateescape")
        if code not in _ESCAPES:
            raise ValueError(f"unknown escape \\{code}: use \\n \\t \\r \\0 \\xHH or \\\\")
        return _ESCAPES[code]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", replace, text).encode("utf-8", "surrogateescape")


#: Bytes that ``--gunzip`` shows of a body: 1 MB of gzip can become 1 GB.
MAX_CONTENT = 16 * 1024 * 1024

#: A parsed format: plain bytes, each with the field behind it ("" for none).
Template = list[tuple[bytes, str]]


def parse_format(text: str) -> Template:
    """Read a format such as ``{time} {id} {body}``; ``{{`` is a brace. Raises ValueError."""
    parts = []
    for plain, field, spec, conversion in string.Formatter().parse(text):
        if field is not None and (field not in FIELDS or spec or conversion):
            raise ValueError(f"unknown field {{{field}}}: use {', '.join(FIELDS)}")
        parts.append((unescape(plain), field or ""))
    return parts


class Renderer:
    """Renders messages as bytes: with a template, as JSON, or the body alone."""

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


def gunzipped(body: bytes, limit: int = MAX_CONTENT) -> bytes:
    """Return the content of a gzip body, up to ``limit`` bytes; any other body unchanged."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as file:
            content = file.read(limit + 1)
    except (OSError, EOFError, zlib.error):
        return body
    if len(content) > limit:
        return content[:limit] + b"... (more than %d bytes)" % limit
    return content


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
    """Return the body in a JSON line of ``nsq_tail --json`` or ``nsq_to_file``. Raises ValueError.
    """
    try:
        record = json.loads(line)
    except ValueError as exc:
        raise ValueError(f"not JSON: {exc}") from None
    record = record if isinstance(record, dict) else {}
    if isinstance(record.get("body"), str):
        return str(record["body"]).encode()
    if isinstance(record.get("body_base64"), str):
        return base64.b64decode(record["body_base64"], validate=True)
    raise ValueError("it must be a JSON object with the text body, or body_base64")


class NotAnObject(ValueError):
    pass


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object. Raises NotAnObject."""
    try:
        found = json.loads(body.decode("utf-8", "replace"), parse_float=_parse_float,
                           parse_constant=_reject_constant)
    except (ValueError, RecursionError) as exc:
        raise NotAnObject(f"not a JSON object: {exc}") from None
    if not isinstance(found, dict):
        raise NotAnObject("not a JSON object")
    return found


def key_of(body: bytes, field: str) -> str:
    """Return the value of a field as key for a partitioned NSQ. Raises InvalidMessageError."""
    try:
        value = parse_object(body).get(field)
    except NotAnObject as exc:
        raise InvalidMessageError(f"no key: {exc}: {body[:100]!r}") from exc
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidMessageError(
            f"no key: the field {field!r} must be a text or a whole number: {body[:100]!r}")
    return str(value)


def in_flags(error: Exception, key_flags: str) -> str:
    """Return the text of an error, with a tool's flags in place of the arguments of publish()."""
    text = str(error)
    if isinstance(error, PartitionError):
        text = re.sub("give key=.*", f"give {key_flags}", text)
        text = text.replace("key= needs", f"{key_flags} needs")
        text = text.replace("defer= needs", "--defer needs")
    return text
