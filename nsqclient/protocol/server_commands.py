"""What nsqd checks in each command, in nsqd's order and with nsqd's words.

Every function takes the words of a command line, or a size that stood before a body, and
returns checked values. Source: TCP protocol spec, "Commands"; nsqd 1.3.0 for the texts.
"""

from __future__ import annotations

from nsqclient.protocol.names import is_valid_name
from nsqclient.protocol.server_events import Fin, Rdy, Req, Sub, Touch
from nsqclient.protocol.server_identify import ServerLimits
from nsqclient.protocol.server_values import as_int64, parse_milliseconds, parse_uint64, quote
from nsqclient.protocol.wire import MESSAGE_ID_SIZE


class Refused(Exception):
    """Ends the reading of a command with nsqd's error: ``code`` and ``text``."""

    def __init__(self, code: str, text: str | bytes = b"") -> None:
        super().__init__(code)
        self.code = code
        self.text = text.encode() if isinstance(text, str) else text


def read_topic(command: bytes, params: list[bytes], words: int = 2) -> str:
    """Read the topic of PUB, MPUB (2 words) or DPUB and SUB (3 words)."""
    if len(params) < words:
        raise Refused("E_INVALID", command + b" insufficient number of parameters")
    topic = _valid_name(params[1])
    if topic is None:
        # nsqd says the code twice for MPUB; clients may look for either text.
        prefix = b"E_BAD_TOPIC " if command == b"MPUB" else b""
        text = prefix + b"%b topic name %b is not valid" % (command, quote(params[1]))
        raise Refused("E_BAD_TOPIC", text)
    return topic


def read_sub(params: list[bytes]) -> Sub:
    """Read ``SUB topic channel``."""
    topic = read_topic(b"SUB", params, 3)
    channel = _valid_name(params[2])
    if channel is None:
        text = b"SUB channel name %b is not valid" % quote(params[2])
        raise Refused("E_BAD_CHANNEL", text)
    return Sub(topic, channel)


def read_rdy(params: list[bytes], limits: ServerLimits) -> Rdy:
    """Read ``RDY count``; without a count it is 1."""
    count = 1
    if len(params) > 1:
        number = parse_uint64(params[1])
        if number is None:
            raise Refused("E_INVALID", b"RDY could not parse count " + params[1])
        count = as_int64(number)
    if not 0 <= count <= limits.max_rdy_count:
        raise Refused("E_INVALID", f"RDY count {count} out of range 0-{limits.max_rdy_count}")
    return Rdy(count)


def read_fin(params: list[bytes]) -> Fin:
    """Read ``FIN id``."""
    return Fin(_message_id(b"FIN", params, 2))


def read_touch(params: list[bytes]) -> Touch:
    """Read ``TOUCH id``."""
    return Touch(_message_id(b"TOUCH", params, 2))


def read_req(params: list[bytes], limits: ServerLimits) -> Req:
    """Read ``REQ id delay``; a delay out of range is clamped, not refused."""
    message_id = _message_id(b"REQ", params, 3)
    delay = parse_milliseconds(params[2])
    if delay is None:
        raise Refused("E_INVALID", b"REQ could not parse timeout " + params[2])
    return Req(message_id, min(max(0, delay[1]), limits.max_req_timeout))


def read_dpub(params: list[bytes], limits: ServerLimits) -> tuple[str, int]:
    """Read the topic and the delay of ``DPUB topic delay``; out of range is refused."""
    topic = read_topic(b"DPUB", params, 3)
    delay = parse_milliseconds(params[2])
    if delay is None:
        raise Refused("E_INVALID", b"DPUB could not parse timeout " + params[2])
    if not 0 <= delay[1] <= limits.max_req_timeout:
        text = f"DPUB timeout {delay[0]} out of range 0-{limits.max_req_timeout}"
        raise Refused("E_INVALID", text)
    return topic, delay[1]


def check_body_size(command: str, size: int, limits: ServerLimits) -> None:
    """Check the size before the body of IDENTIFY, AUTH or MPUB."""
    if size <= 0:
        raise Refused("E_BAD_BODY", f"{command} invalid body size {size}")
    if size > limits.max_body_size:
        raise Refused("E_BAD_BODY", f"{command} body too big {size} > {limits.max_body_size}")


def check_message_size(command: str, size: int, limits: ServerLimits, index: int = -1) -> None:
    """Check the size before a message of PUB, DPUB or, with its ``index``, MPUB."""
    if size <= 0:
        what = "message body" if index < 0 else f"message({index}) body"
        raise Refused("E_BAD_MESSAGE", f"{command} invalid {what} size {size}")
    if size > limits.max_msg_size:
        text = f"{command} message too big {size} > {limits.max_msg_size}"
        raise Refused("E_BAD_MESSAGE", text)


def check_mpub_count(count: int, limits: ServerLimits) -> None:
    """Check the number of messages in an MPUB: each takes five bytes at least."""
    if not 0 < count <= (limits.max_body_size - 4) // 5:
        raise Refused("E_BAD_BODY", f"MPUB invalid message count {count}")


def _valid_name(raw: bytes) -> str | None:
    if not raw.isascii():
        return None
    name = raw.decode("ascii")
    return name if is_valid_name(name) else None


def _message_id(command: bytes, params: list[bytes], words: int) -> bytes:
    if len(params) < words:
        raise Refused("E_INVALID", command + b" insufficient number of params")
    if len(params[1]) != MESSAGE_ID_SIZE:
        raise Refused("E_INVALID", "invalid message ID")
    return params[1]
