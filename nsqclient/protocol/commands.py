"""One short function for each client command, and the checks of what publishes send.

nsqd answers most invalid commands by closing the connection. So callers check topics and bodies of
publishes first, and the other functions check their arguments. Source: TCP protocol spec,
"Commands".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Union, cast

from nsqclient import native
from nsqclient.errors import InvalidMessageError, LocalProtocolError
from nsqclient.protocol.frames import MESSAGE_ID_SIZE
from nsqclient.protocol.names import check_channel, check_topic

#: nsqd's default for --max-msg-size.
DEFAULT_MAX_MSG_SIZE = 1024 * 1024
#: Maximum messages per MPUB of ``publish_many``. nsqd limits only the size of the body.
MAX_PER_MPUB = 10_000
#: nsqd counts a delay in nanoseconds with 64 bits; a longer one would overflow to "at once".
_MAX_DELAY_MS = (2**63 - 1) // 1_000_000

_size = struct.Struct(">i")

NOP = b"NOP\n"
CLS = b"CLS\n"


def _sized(body: bytes) -> bytes:
    return _size.pack(len(body)) + body


Body = Union[bytes, bytearray, memoryview]


def check_body(body: object, max_msg_size: int = DEFAULT_MAX_MSG_SIZE) -> bytes:
    """Return ``body`` as bytes if nsqd would store it. Raises InvalidMessageError."""
    if type(body) is bytes and 0 < len(body) <= max_msg_size:
        return body  # the usual case
    if isinstance(body, DeliveredBody) and body:
        return bytes(body)
    if isinstance(body, str):
        raise InvalidMessageError("message body is a str: encode it first, body.encode()")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidMessageError(
            f"message body must be bytes, not {type(body).__name__}: for a value as JSON use"
            " Producer.publish_json(), or json.dumps(body).encode()")
    data = bytes(body)
    if not data:
        raise InvalidMessageError("message body is empty: nsqd would refuse it and close")
    if len(data) > max_msg_size:
        raise InvalidMessageError(
            f"message body of {len(data)} bytes is over nsqd's limit of {max_msg_size}"
            " (nsqd --max-msg-size, our option nsqd_max_msg_size)"
        )
    return data


class DeliveredBody(bytes):
    """A body that an nsqd has delivered: ``check_body`` does not apply our limit, which is a guess.

    An nsqd with a lower limit rejects it and closes the connection.
    """


#: Marks a missing value: None is a valid JSON value.
NO_JSON: Any = object()


def chosen_body(body: Body | None, json: object) -> Body:
    """Return the body, or the value as JSON, whichever was given.

    Raises:
        InvalidMessageError: both or neither were given, or the value cannot be JSON.
    """
    if (body is None) == (json is NO_JSON):
        raise InvalidMessageError("give either body (bytes) or json (a value)")
    return json_body(json) if body is None else body


def json_body(value: object) -> bytes:
    """Return a value as JSON in UTF-8, without blanks. Raises InvalidMessageError."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        hint = ""
        if "serializable" in str(exc):
            hint = ": convert it first, as a datetime with isoformat(), a Decimal with str()"
        raise InvalidMessageError(
            f"no JSON can be made of the {type(value).__name__}: {exc}{hint}") from exc


def identify(payload: Mapping[str, Any]) -> bytes:
    """IDENTIFY. The server answers OK or JSON."""
    return b"IDENTIFY\n" + _sized(json.dumps(payload).encode())


def auth(secret: str) -> bytes:
    """AUTH. Bytes that are not UTF-8, in a secret from a command line, are sent unchanged."""
    if not secret:
        raise LocalProtocolError("auth secret is empty")
    return b"AUTH\n" + _sized(secret.encode("utf-8", "surrogateescape"))


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {check_topic(topic)} {check_channel(channel)}\n".encode()


def check_bodies(bodies: Iterable[object], max_msg_size: int) -> list[bytes]:
    """Return the bodies as bytes if nsqd would store each of them. Raises InvalidMessageError."""
    bodies = list(bodies)
    # The usual case, without a loop in Python.
    if set(map(type, bodies)) == {bytes}:
        checked = cast("list[bytes]", bodies)
        if min(map(len, checked)) > 0 and max(map(len, checked)) <= max_msg_size:
            return checked
    return [check_body(body, max_msg_size) for body in bodies]


def check_delay(delay_ms: int, max_req_timeout_ms: int) -> None:
    """Check the delay of a DPUB. Raises InvalidMessageError."""
    if not 0 <= delay_ms <= max_req_timeout_ms:
        raise InvalidMessageError(
            f"delay of {delay_ms / 1000:g} s is out of range: 0 to {max_req_timeout_ms / 1000:g} s"
            " (nsqd --max-req-timeout, our option nsqd_max_req_timeout)"
        )


def mpub_size(bodies: Sequence[bytes]) -> int:
    return 4 + 4 * len(bodies) + sum(map(len, bodies))


def chunk_bodies(bodies: list[bytes], max_body_size: int) -> Iterator[list[bytes]]:
    """Split the bodies, in order, into parts that fit one MPUB each.

    A body that exceeds the limit by itself becomes a part of its own.
    """
    # The usual case, without a loop in Python.
    if 0 < len(bodies) <= MAX_PER_MPUB and mpub_size(bodies) <= max_body_size:
        yield bodies
        return
    part: list[bytes] = []
    size = 4
    for body in bodies:
        if part and (size + 4 + len(body) > max_body_size or len(part) >= MAX_PER_MPUB):
            yield part
            part, size = [], 4
        part.append(body)
        size += 4 + len(body)
    if part:
        yield part


def check_mpub(
    bodies: Iterable[object], max_msg_size: int, max_body_size: int
) -> list[bytes]:
    """Return the bodies as bytes if nsqd would store them with one command.

    Raises:
        InvalidMessageError: nsqd would refuse a body, ``bodies`` is empty or exceeds
            ``max_body_size``.
    """
    checked = check_bodies(bodies, max_msg_size)
    if not checked:
        raise InvalidMessageError("MPUB needs at least one message")
    size = mpub_size(checked)
    if size > max_body_size:
        raise InvalidMessageError(
            f"MPUB body of {size} bytes is over nsqd's limit of {max_body_size}"
            " (nsqd --max-body-size, our option nsqd_max_body_size)"
        )
    return checked


def pub(topic: str, body: bytes) -> bytes:
    return b"PUB %b\n%b%b" % (topic.encode(), _size.pack(len(body)), body)


def pub_or_mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    return mpub(topic, bodies) if len(bodies) > 1 else pub(topic, bodies[0])


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %b %d\n%b%b" % (topic.encode(), delay_ms, _size.pack(len(body)), body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    return pack_bodies(bodies, b"MPUB %b\n%b" % (topic.encode(), _size.pack(mpub_size(bodies))))


def pack_bodies_in_python(bodies: Sequence[bytes], before: bytes) -> bytes:
    """Python form of :data:`pack_bodies`."""
    pack = _size.pack
    parts = [before, pack(len(bodies))]
    # Without a loop in Python: this is most of the work of a large MPUB.
    parts.extend(chain.from_iterable(zip(map(pack, map(len, bodies)), bodies)))
    return b"".join(parts)


#: Return ``before`` and the body of an MPUB. A binary ``POST /mpub`` has the same body.
pack_bodies: Callable[[Sequence[bytes], bytes], bytes] = (
    pack_bodies_in_python if native.compiled is None else native.compiled.pack_bodies)


def rdy(count: int, max_rdy_count: int) -> bytes:
    if not 0 <= count <= max_rdy_count:
        raise LocalProtocolError(f"RDY {count} is out of range: 0 to {max_rdy_count}")
    return b"RDY %d\n" % count


def _id(message_id: bytes, binary: bool) -> bytes:
    # nsqd takes any 16 bytes as an id, but ends a command at a newline and a word at a space.
    # Only a partitioned nsqd reads 16 bytes of any value.
    is_word = binary or not (b" " in message_id or b"\n" in message_id)
    if len(message_id) != MESSAGE_ID_SIZE or not is_word:
        what = "bytes" if binary else "bytes without a space or newline"
        text = message_id.decode("ascii", "backslashreplace")
        raise LocalProtocolError(f"message id {text!r} is not {MESSAGE_ID_SIZE} {what}")
    return message_id


def req(message_id: bytes, delay_ms: int, *, binary: bool = False) -> bytes:
    """REQ: return the message to nsqd. ``binary``: the id is from a partitioned nsqd."""
    if delay_ms < 0:
        raise LocalProtocolError(f"requeue delay of {delay_ms} ms is negative")
    return b"REQ %b %d\n" % (_id(message_id, binary), min(delay_ms, _MAX_DELAY_MS))


def touch(message_id: bytes, *, binary: bool = False) -> bytes:
    return b"TOUCH %b\n" % _id(message_id, binary)
