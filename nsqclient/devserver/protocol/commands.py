"""The commands of a client: values, the checks that nsqd makes, and the error that it sends.

The commands are the events of the server core; each docstring says how to answer one. The checks
are in nsqd's order, with nsqd 1.3.0's texts.
Source: TCP protocol spec, "Commands".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

from nsqclient.protocol.frames import MESSAGE_ID_SIZE
from nsqclient.protocol.names import is_valid_name
from nsqclient.runtime.addresses import parse_uint


#: The release of NSQ that the embedded servers copy. Clients read it in IDENTIFY, ``/info`` and
#: ``/lookup`` and some parse it, so the version of nsqclient would be wrong here.
NSQD_VERSION = "1.3.0"
#: Digits of the largest number of 64 bits.
_DIGITS = 20


def version_line(program: str) -> str:
    """Return what ``--version`` prints, in the form of the Go programs, which clients parse."""
    return f"{program} v{NSQD_VERSION} (built w/python{python_version()})"


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


class ServerLimits(NamedTuple):
    """The limits of a server; nsqd's defaults. Durations in milliseconds, as on the wire."""

    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    max_rdy_count: int = 2500
    max_req_timeout: int = 3_600_000
    msg_timeout: int = 60_000
    max_msg_timeout: int = 900_000
    heartbeat_interval: int = 30_000
    max_heartbeat_interval: int = 60_000
    output_buffer_size: int = 16 * 1024
    max_output_buffer_size: int = 64 * 1024
    output_buffer_timeout: int = 250
    min_output_buffer_timeout: int = 25
    max_output_buffer_timeout: int = 30_000
    max_deflate_level: int = 6
    tls: bool = False
    tls_required: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False
    version: str = NSQD_VERSION


class ClientSettings(NamedTuple):
    """The settings of a client after its last IDENTIFY, in milliseconds; heartbeat 0 is off."""

    heartbeat_interval: int
    msg_timeout: int
    output_buffer_size: int
    output_buffer_timeout: int
    sample_rate: int = 0
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    feature_negotiation: bool = False
    tls: bool = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False


class CommandError(Exception):
    """A command fails with nsqd's error ``code``; ``text`` follows the code in the frame."""

    def __init__(self, code: str, text: str | bytes = b"") -> None:
        # A name that is not UTF-8 is echoed byte for byte.
        self.text: bytes = (
            text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
        self.code = code
        super().__init__(f"{code} {self.text.decode('utf-8', 'replace')}")


class Identify(NamedTuple):
    """Answer with ``respond(response)``, after the settings were applied."""

    settings: ClientSettings
    response: bytes


class Auth(NamedTuple):
    """Answer with ``respond(json)`` or a failure; without an auth server E_AUTH_DISABLED."""

    secret: bytes

    def __repr__(self) -> str:
        return "Auth(secret=...)"


class Sub(NamedTuple):
    """Answer with OK, or E_SUB_FAILED."""

    topic: str
    channel: str


class Rdy(NamedTuple):
    """No answer."""

    level: int


class Fin(NamedTuple):
    """No answer on success, E_FIN_FAILED on failure."""

    message_id: bytes


class Req(NamedTuple):
    """No answer on success, E_REQ_FAILED on failure. ``delay_ms`` is within the limits."""

    message_id: bytes
    delay_ms: int


class Touch(NamedTuple):
    """No answer on success, E_TOUCH_FAILED on failure."""

    message_id: bytes


class Cls(NamedTuple):
    """Answer with CLOSE_WAIT, after which no message may be sent."""


class Pub(NamedTuple):
    """Answer with OK, or E_PUB_FAILED."""

    topic: str
    body: bytes


class Dpub(NamedTuple):
    """Answer with OK, or E_DPUB_FAILED."""

    topic: str
    delay_ms: int
    body: bytes


class OpenTopic(NamedTuple):
    """No answer: create the topic of an MPUB, whose body is still to be read."""

    topic: str


class Mpub(NamedTuple):
    """Answer with OK, or E_MPUB_FAILED. All messages or none."""

    topic: str
    bodies: list[bytes]


class Ignored(NamedTuple):
    """No answer and no effect: NOP, and RDY after CLS."""

    line: bytes


class NewMessage(NamedTuple):
    """One message of a publish, as received."""

    body: bytes
    trace_id: int = 0
    header: bytes = b""  #: the JSON header


class OpenPartition(NamedTuple):
    """No answer, or a fatal error before the body is read: the partition does not exist."""

    command: str
    topic: str
    partition: int | None


class PartitionPub(NamedTuple):
    """Answer with OK, or with 30 bytes if the command or a header asks for them."""

    command: str
    topic: str
    partition: int | None
    messages: list[NewMessage]


class PartitionSub(NamedTuple):
    """Answer with OK, or an error; SUB, SUB_ORDERED or SUB_ADVANCED."""

    command: str
    topic: str
    channel: str
    partition: int | None


PartitionEvent = OpenPartition | PartitionPub | PartitionSub


Event = Union[
    Identify, Auth, Sub, Rdy, Fin, Req, Touch, Cls, Pub, Dpub, OpenTopic, Mpub, Ignored,
    PartitionEvent,
]


def read_topic(command: bytes, params: list[bytes], words: int = 2) -> str:
    """Read the topic of PUB, MPUB (2 words) or DPUB and SUB (3 words)."""
    if len(params) < words:
        raise CommandError("E_INVALID", command + b" insufficient number of parameters")
    topic = _valid_name(params[1])
    if topic is None:
        # nsqd sends the code twice for MPUB; clients may search for either text.
        prefix = b"E_BAD_TOPIC " if command == b"MPUB" else b""
        text = prefix + b"%b topic name %b is not valid" % (command, quote(params[1]))
        raise CommandError("E_BAD_TOPIC", text)
    return topic


def read_sub(params: list[bytes]) -> Sub:
    topic = read_topic(b"SUB", params, 3)
    channel = _valid_name(params[2])
    if channel is None:
        text = b"SUB channel name %b is not valid" % quote(params[2])
        raise CommandError("E_BAD_CHANNEL", text)
    return Sub(topic, channel)


def read_rdy(params: list[bytes], limits: ServerLimits) -> Rdy:
    count = parse_number(params[1]) if len(params) > 1 else 1
    if count is None:
        raise CommandError("E_INVALID", b"RDY could not parse count " + params[1])
    if count > limits.max_rdy_count:
        raise CommandError("E_INVALID", f"RDY count {count} out of range 0-{limits.max_rdy_count}")
    return Rdy(count)


def read_req(params: list[bytes], limits: ServerLimits) -> Req:
    """Read ``REQ id delay``; a delay out of range is clamped."""
    message_id = read_message_id(b"REQ", params, 3)
    delay = parse_number(params[2])
    if delay is None:
        raise CommandError("E_INVALID", b"REQ could not parse timeout " + params[2])
    return Req(message_id, min(delay, limits.max_req_timeout))


def read_dpub(params: list[bytes], limits: ServerLimits) -> tuple[str, int]:
    """Read the topic and the delay of ``DPUB topic delay``; out of range is an error."""
    topic = read_topic(b"DPUB", params, 3)
    delay = parse_number(params[2])
    if delay is None:
        raise CommandError("E_INVALID", b"DPUB could not parse timeout " + params[2])
    if delay > limits.max_req_timeout:
        text = f"DPUB timeout {delay} out of range 0-{limits.max_req_timeout}"
        raise CommandError("E_INVALID", text)
    return topic, delay


def check_body_size(command: str, size: int, limits: ServerLimits) -> None:
    if size <= 0:
        raise CommandError("E_BAD_BODY", f"{command} invalid body size {size}")
    if size > limits.max_body_size:
        raise CommandError("E_BAD_BODY", f"{command} body too big {size} > {limits.max_body_size}")


def check_message_size(command: str, size: int, limits: ServerLimits, index: int = -1) -> None:
    if size <= 0:
        what = "message body" if index < 0 else f"message({index}) body"
        raise CommandError("E_BAD_MESSAGE", f"{command} invalid {what} size {size}")
    if size > limits.max_msg_size:
        text = f"{command} message too big {size} > {limits.max_msg_size}"
        raise CommandError("E_BAD_MESSAGE", text)


def check_mpub_count(count: int, limits: ServerLimits) -> None:
    if not 0 < count <= (limits.max_body_size - 4) // 5:
        raise CommandError("E_BAD_BODY", f"MPUB invalid message count {count}")


def _valid_name(raw: bytes) -> str | None:
    if not raw.isascii():
        return None
    name = raw.decode("ascii")
    return name if is_valid_name(name) else None


def read_message_id(command: bytes, params: list[bytes], words: int = 2) -> bytes:
    if len(params) < words:
        raise CommandError("E_INVALID", command + b" insufficient number of params")
    if len(params[1]) != MESSAGE_ID_SIZE:
        raise CommandError("E_INVALID", "invalid message ID")
    return params[1]


# -- JSON, numbers and names as nsqd, which is written in Go, reads and writes them


def parse_number(digits: bytes) -> int | None:
    return parse_uint(digits.decode("ascii", "replace"), _DIGITS)


def quote(name: bytes) -> bytes:
    """Write ``name`` in double quotes, with what cannot be printed escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


class InvalidJSON(ValueError):
    """nsqd does not accept it."""


def decode_json(body: bytes, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read an object as :func:`read_fields` does; null is an empty one. Raises InvalidJSON."""
    try:
        parsed = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise InvalidJSON("no JSON") from None
    return {} if parsed is None else read_fields(parsed, kinds)


def read_fields(value: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the fields of a JSON object; null and unknown keys set nothing.

    ``kinds``: key -> str, int, bool or list; a float is not an integer. Raises InvalidJSON.
    """
    if not isinstance(value, dict):
        raise InvalidJSON("not a JSON object")
    fields = {key: each for key, each in value.items() if key in kinds and each is not None}
    for key, each in fields.items():
        if type(each) is not kinds[key]:  # exact: a bool does not count as int
            raise InvalidJSON(f"{key} is not of type {kinds[key].__name__}")
    return fields


def encode_json(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


# -- IDENTIFY


#: key -> type in nsqd's own structure; keys that are not here are ignored.
_IDENTIFY_FIELDS: dict[str, type] = {
    "client_id": str, "hostname": str, "user_agent": str,
    "heartbeat_interval": int, "output_buffer_size": int, "output_buffer_timeout": int,
    "sample_rate": int, "msg_timeout": int, "deflate_level": int,
    "feature_negotiation": bool, "tls_v1": bool, "deflate": bool, "snappy": bool,
}


def decode_identify(body: bytes) -> dict[str, Any]:
    try:
        return decode_json(body, _IDENTIFY_FIELDS)
    except InvalidJSON:
        raise CommandError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None


def negotiate(
    fields: dict[str, Any], current: ClientSettings, limits: ServerLimits
) -> ClientSettings:
    """Apply the payload to the client's settings; 0 keeps the current value, -1 turns it off.

    Raises CommandError: a value is out of range, or both compressions would be granted.
    """
    heartbeat = fields.get("heartbeat_interval", 0)
    interval = _choose(
        "heartbeat interval", heartbeat, current.heartbeat_interval,
        1000, limits.max_heartbeat_interval, off=0,
    )
    timeout = fields.get("output_buffer_timeout", 0)
    buffer_timeout = _choose(
        "output buffer timeout", timeout, current.output_buffer_timeout,
        limits.min_output_buffer_timeout, limits.max_output_buffer_timeout, off=0,
    )
    size = fields.get("output_buffer_size", 0)
    buffer_size = _choose(
        "output buffer size", size, current.output_buffer_size,
        64, limits.max_output_buffer_size, off=1,
    )
    if size == -1:
        buffer_timeout = 0
    sample_rate = fields.get("sample_rate", 0)
    if not 0 <= sample_rate <= 99:
        raise _out_of_range("sample rate", sample_rate)
    msg_timeout = _choose(
        "msg timeout", fields.get("msg_timeout", 0), current.msg_timeout,
        1000, limits.max_msg_timeout, off=None,
    )
    asked = fields.get("feature_negotiation", False)
    deflate = asked and limits.deflate and fields.get("deflate", False)
    snappy = asked and limits.snappy and fields.get("snappy", False)
    if deflate and snappy:
        raise CommandError(
            "E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression"
        )
    level = fields.get("deflate_level", 0)
    return ClientSettings(
        interval, msg_timeout, buffer_size, buffer_timeout, sample_rate,
        client_id=fields.get("client_id", ""),
        hostname=fields.get("hostname", ""),
        user_agent=fields.get("user_agent", ""),
        feature_negotiation=asked,
        tls=asked and limits.tls and fields.get("tls_v1", False),
        deflate=deflate,
        deflate_level=min(level if deflate and level > 0 else 6, limits.max_deflate_level),
        snappy=snappy,
    )


def identify_response(settings: ClientSettings, limits: ServerLimits) -> bytes:
    """Build the answer to IDENTIFY: OK, or JSON with nsqd's keys in nsqd's order."""
    if not settings.feature_negotiation:
        return b"OK"
    answer = {
        "max_rdy_count": limits.max_rdy_count,
        "version": limits.version,
        "max_msg_timeout": limits.max_msg_timeout,
        "msg_timeout": settings.msg_timeout,
        "tls_v1": settings.tls,
        "deflate": settings.deflate,
        "deflate_level": settings.deflate_level,
        "max_deflate_level": limits.max_deflate_level,
        "snappy": settings.snappy,
        "sample_rate": settings.sample_rate,
        "auth_required": limits.auth_required,
        "output_buffer_size": settings.output_buffer_size,
        "output_buffer_timeout": settings.output_buffer_timeout,
    }
    return encode_json(answer)


def _choose(
    name: str, asked: int, current: int, lowest: int, highest: int, *, off: int | None
) -> int:
    """Return the value in force; ``off`` is what -1 means, None when -1 is not allowed."""
    if asked == 0:
        return current
    if asked == -1 and off is not None:
        return off
    if lowest <= asked <= highest:
        return asked
    raise _out_of_range(name, asked)


def _out_of_range(name: str, asked: int) -> CommandError:
    return CommandError("E_BAD_BODY", f"IDENTIFY {name} ({asked}) is invalid")
