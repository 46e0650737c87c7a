"""nsqd's answers to right and wrong commands, captured byte for byte from a real server.

Each row has the bytes that a client sends after the magic, the frames it gets back, and whether the
connection is open then. nsqd ran with its defaults: 1 MiB messages, 5 MiB bodies, RDY up to 2500,
deferral up to one hour, no certificate. The rows that switch a connection to deflate or snappy
stand apart, in LAYERS: what follows the answer has to be decompressed. Nothing is left out on
either server.
"""

import json
from typing import Any, NamedTuple

RESPONSE, ERROR = 0, 1

#: IDENTIFY's answer from an nsqd with defaults to a client that asks for nothing, in its order.
IDENTIFIED: dict[str, Any] = {
    "max_rdy_count": 2500,
    "version": "1.3.0",
    "max_msg_timeout": 900000,
    "msg_timeout": 60000,
    "tls_v1": False,
    "deflate": False,
    "deflate_level": 6,
    "max_deflate_level": 6,
    "snappy": False,
    "sample_rate": 0,
    "auth_required": False,
    "output_buffer_size": 16384,
    "output_buffer_timeout": 250,
}

#: Keys that nsqd's master adds at the end and release 1.3.0 does not have.
LATER_KEYS = ("topology_region", "topology_zone")


class Row(NamedTuple):
    """The bytes to send, and the expected response."""

    sent: bytes
    #: (type, data) of every frame; None for data: an IDENTIFY answer, see ``identified``.
    frames: tuple[tuple[int, bytes | None], ...]
    closed: bool
    #: The connection has subscribed to t1/c1 before.
    after_sub: bool = False
    magic: bytes = b"  V2"
    #: The server still waits for the rest of a command, so it cannot be asked another one.
    mid_body: bool = False
    identified: dict[str, Any] | None = None


def response(text: str) -> tuple[int, bytes]:
    return RESPONSE, text.encode()


def error(text: str) -> tuple[int, bytes]:
    return ERROR, text.encode()


def fatal(sent: bytes, text: str, **more: Any) -> Row:
    """One error frame, then the end of the connection."""
    return Row(sent, (error(text),), closed=True, **more)


def closes(sent: bytes, *frames: tuple[int, bytes], **more: Any) -> Row:
    """Some frames, then the end of the connection."""
    return Row(sent, frames, closed=True, **more)


def stays(sent: bytes, *frames: tuple[int, bytes], **more: Any) -> Row:
    """Some frames or none, and the connection goes on."""
    return Row(sent, frames, closed=False, **more)


def agreed(sent: bytes, **changes: Any) -> Row:
    """IDENTIFY's answer in JSON, with ``changes`` to IDENTIFIED."""
    return Row(sent, ((RESPONSE, None),), closed=False, identified={**IDENTIFIED, **changes})


def identify(field: str, value: int) -> bytes:
    body = json.dumps({field: value, "feature_negotiation": True}).encode()
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


#: A field of IDENTIFY, a value that nsqd takes, and what its answer then has.
_TAKEN: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("heartbeat_interval", 1000, {}),
    ("heartbeat_interval", 60000, {}),
    ("heartbeat_interval", -1, {}),
    ("heartbeat_interval", 0, {}),
    ("output_buffer_size", -1, {"output_buffer_size": 1, "output_buffer_timeout": 0}),
    ("output_buffer_size", 0, {}),
    ("output_buffer_size", 64, {"output_buffer_size": 64}),
    ("output_buffer_size", 65536, {"output_buffer_size": 65536}),
    ("output_buffer_timeout", -1, {"output_buffer_timeout": 0}),
    ("output_buffer_timeout", 0, {}),
    ("output_buffer_timeout", 25, {"output_buffer_timeout": 25}),
    ("output_buffer_timeout", 30000, {"output_buffer_timeout": 30000}),
    ("sample_rate", 0, {}),
    ("sample_rate", 1, {"sample_rate": 1}),
    ("sample_rate", 99, {"sample_rate": 99}),
    ("msg_timeout", 0, {}),
    ("msg_timeout", 1000, {"msg_timeout": 1000}),
    ("msg_timeout", 900000, {"msg_timeout": 900000}),
)
#: A field of IDENTIFY, and values that are fatal.
_REFUSED = {
    "heartbeat_interval": (999, 60001, -2),
    "output_buffer_size": (63, 65537, -2),
    "output_buffer_timeout": (1, 24, 30001),
    "sample_rate": (100, -1),
    "msg_timeout": (999, 900001, -1),
}

MAGIC = (
    fatal(b"  V1", "E_BAD_PROTOCOL", magic=b""),
    fatal(b"GET ", "E_BAD_PROTOCOL", magic=b""),
    stays(b"  ", magic=b""),
)

IDENTIFY = (
    stays(b"IDENTIFY\n\x00\x00\x00\x02{}", response("OK")),
    agreed(b'IDENTIFY\n\x00\x00\x00\x1c{"feature_negotiation":true}'),
    agreed(b'IDENTIFY\n\x00\x00\x009{"short_id":"a","long_id":"b","feature_negotiation":true}'),
    fatal(b"IDENTIFY\n\x00\x00\x00\x05{nope", "E_BAD_BODY IDENTIFY failed to decode JSON body"),
    fatal(b"IDENTIFY\n\x00\x00\x00\x02[]", "E_BAD_BODY IDENTIFY failed to decode JSON body"),
    fatal(b'IDENTIFY\n\x00\x00\x00\x1a{"heartbeat_interval":"x"}',
          "E_BAD_BODY IDENTIFY failed to decode JSON body"),
    fatal(b'IDENTIFY\n\x00\x00\x00\x1d{"heartbeat_interval":1000.5}',
          "E_BAD_BODY IDENTIFY failed to decode JSON body"),
    stays(b"IDENTIFY\n\x00\x00\x00\x04null", response("OK")),
    fatal(b"IDENTIFY\n\x00\x00\x00\x00", "E_BAD_BODY IDENTIFY invalid body size 0"),
    fatal(b"IDENTIFY\n\xff\xff\xff\xff", "E_BAD_BODY IDENTIFY invalid body size -1"),
    fatal(b"IDENTIFY\n\x00P\x00\x01", "E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"),
    *(agreed(identify(field, value), **changes) for field, value, changes in _TAKEN),
    *(fatal(identify(field, value),
            f"E_BAD_BODY IDENTIFY {field.replace('_', ' ')} ({value}) is invalid")
      for field, values in _REFUSED.items() for value in values),
    fatal(b'IDENTIFY\n\x00\x00\x009{"feature_negotiation":true,"deflate":true,"snappy":true}',
          "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"),
    agreed(b'IDENTIFY\n\x00\x00\x00*{"feature_negotiation":true,"tls_v1":true}'),
    stays(b'IDENTIFY\n\x00\x00\x00\x0f{"snappy":true}', response("OK")),
    stays(b"IDENTIFY\n\x00\x00\x00\x02{}IDENTIFY\n\x00\x00\x00\x02{}", response("OK"),
          response("OK")),
    fatal(b"IDENTIFY\n\x00\x00\x00\x02{}",
          "E_INVALID cannot IDENTIFY in current state", after_sub=True),
    stays(b"IDENTIFY\r\n\x00\x00\x00\x02{}", response("OK")),
    stays(b"IDENTIFY foo bar\n\x00\x00\x00\x02{}", response("OK")),
)

AUTH = (
    fatal(b"AUTH\n\x00\x00\x00\x06secret", "E_AUTH_DISABLED AUTH disabled"),
    fatal(b"AUTH\n\x00\x00\x00\x00", "E_BAD_BODY AUTH invalid body size 0"),
    fatal(b"AUTH x\n\x00\x00\x00\x06secret", "E_INVALID AUTH invalid number of parameters"),
    fatal(b"AUTH\n\x00\x00\x00\x06secret",
          "E_INVALID cannot AUTH in current state", after_sub=True),
)

UNKNOWN = (
    fatal(b"FOO bar\n", "E_INVALID invalid command FOO"),
    fatal(b"nop\n", "E_INVALID invalid command nop"),
    fatal(b"\n", "E_INVALID invalid command "),
    fatal(b" NOP\n", "E_INVALID invalid command "),
    stays(b"NOP\n"),
    stays(b"NOP x y\n"),
    # A command line that does not end: dropped without a word.
    Row(20_000 * b"A", (), closed=True),
)

SUB = (
    stays(b"SUB t1 c1\n", response("OK")),
    fatal(b"SUB\n", "E_INVALID SUB insufficient number of parameters"),
    fatal(b"SUB t1\n", "E_INVALID SUB insufficient number of parameters"),
    fatal(b"SUB bad$topic c1\n", 'E_BAD_TOPIC SUB topic name "bad$topic" is not valid'),
    fatal(b"SUB  c1\n", 'E_BAD_TOPIC SUB topic name "" is not valid'),
    stays(b"SUB " + 64 * b"a" + b" c1\n", response("OK")),
    fatal(b"SUB " + 65 * b"a" + b" c1\n",
          'E_BAD_TOPIC SUB topic name "' + 65 * "a" + '" is not valid'),
    fatal(b"SUB t1 c$1\n", 'E_BAD_CHANNEL SUB channel name "c$1" is not valid'),
    fatal(b"SUB t1 \n", 'E_BAD_CHANNEL SUB channel name "" is not valid'),
    fatal(b"SUB t1 " + 65 * b"c" + b"\n",
          'E_BAD_CHANNEL SUB channel name "' + 65 * "c" + '" is not valid'),
    fatal(b"SUB t1 \xc3\xa9\n", 'E_BAD_CHANNEL SUB channel name "é" is not valid'),
    fatal(b"SUB #ephemeral c\n", 'E_BAD_TOPIC SUB topic name "#ephemeral" is not valid'),
    stays(b"SUB x#ephemeral c#ephemeral\n", response("OK")),
    fatal(b"SUB x#eph c\n", 'E_BAD_TOPIC SUB topic name "x#eph" is not valid'),
    stays(b"SUB t1 c1 extra\n", response("OK")),
    fatal(b"SUB t1 c1\n", "E_INVALID cannot SUB in current state", after_sub=True),
    closes(b'IDENTIFY\n\x00\x00\x00\x19{"heartbeat_interval":-1}SUB t1 c1\n', response("OK"),
           error("E_INVALID cannot SUB with heartbeats disabled")),
    closes(b"CLS\nSUB t1 c1\n", response("CLOSE_WAIT"),
           error("E_INVALID cannot SUB in current state"), after_sub=True),
)

RDY = (
    fatal(b"RDY 1\n", "E_INVALID cannot RDY in current state"),
    stays(b"RDY\n", after_sub=True),
    stays(b"RDY 2500\n", after_sub=True),
    fatal(b"RDY 2501\n", "E_INVALID RDY count 2501 out of range 0-2500", after_sub=True),
    fatal(b"RDY -1\n", "E_INVALID RDY could not parse count -1", after_sub=True),
    fatal(b"RDY abc\n", "E_INVALID RDY could not parse count abc", after_sub=True),
    stays(b"RDY 1 2\n", after_sub=True),
    stays(b"CLS\nRDY 5\n", response("CLOSE_WAIT"), after_sub=True),
    stays(b"CLS\nRDY 99999\n", response("CLOSE_WAIT"), after_sub=True),
)

FIN = (
    fatal(b"FIN 0123456789abcdef\n", "E_INVALID cannot FIN in current state"),
    fatal(b"FIN\n", "E_INVALID FIN insufficient number of params", after_sub=True),
    fatal(b"FIN abc\n", "E_INVALID invalid message ID", after_sub=True),
    stays(b"FIN 0123456789abcdef\n",
          error("E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"), after_sub=True),
    fatal(b"FIN 0123456789abcdef0\n", "E_INVALID invalid message ID", after_sub=True),
    stays(b"CLS\nFIN 0123456789abcdef\n", response("CLOSE_WAIT"),
          error("E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"), after_sub=True),
)

REQ = (
    fatal(b"REQ 0123456789abcdef 0\n", "E_INVALID cannot REQ in current state"),
    fatal(b"REQ 0123456789abcdef\n", "E_INVALID REQ insufficient number of params", after_sub=True),
    fatal(b"REQ abc 0\n", "E_INVALID invalid message ID", after_sub=True),
    stays(b"REQ 0123456789abcdef 0\n",
          error("E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight"), after_sub=True),
    fatal(b"REQ 0123456789abcdef x\n", "E_INVALID REQ could not parse timeout x", after_sub=True),
    fatal(b"REQ 0123456789abcdef -1\n", "E_INVALID REQ could not parse timeout -1", after_sub=True),
    stays(b"REQ 0123456789abcdef 99999999\n",
          error("E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight"), after_sub=True),
)

TOUCH = (
    fatal(b"TOUCH 0123456789abcdef\n", "E_INVALID cannot TOUCH in current state"),
    fatal(b"TOUCH\n", "E_INVALID TOUCH insufficient number of params", after_sub=True),
    fatal(b"TOUCH abc\n", "E_INVALID invalid message ID", after_sub=True),
    stays(b"TOUCH 0123456789abcdef\n",
          error("E_TOUCH_FAILED TOUCH 0123456789abcdef failed ID not in flight"), after_sub=True),
)

CLS = (
    fatal(b"CLS\n", "E_INVALID cannot CLS in current state"),
    stays(b"CLS\n", response("CLOSE_WAIT"), after_sub=True),
    closes(b"CLS\nCLS\n", response("CLOSE_WAIT"),
           error("E_INVALID cannot CLS in current state"), after_sub=True),
)

PUB = (
    stays(b"PUB t1\n\x00\x00\x00\x01x", response("OK")),
    fatal(b"PUB\n\x00\x00\x00\x01x", "E_INVALID PUB insufficient number of parameters"),
    fatal(b"PUB bad$t\n\x00\x00\x00\x01x", 'E_BAD_TOPIC PUB topic name "bad$t" is not valid'),
    fatal(b"PUB \n\x00\x00\x00\x01x", 'E_BAD_TOPIC PUB topic name "" is not valid'),
    fatal(b"PUB t1\n\x00\x00\x00\x00", "E_BAD_MESSAGE PUB invalid message body size 0"),
    fatal(b"PUB t1\n\xff\xff\xff\xff", "E_BAD_MESSAGE PUB invalid message body size -1"),
    fatal(b"PUB t1\n\x00\x10\x00\x01", "E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
    stays(b"PUB t1\n\x00\x10\x00\x00" + 1048576 * b"x", response("OK")),
    stays(b"PUB t1 foo\n\x00\x00\x00\x01x", response("OK")),
    stays(b"PUB t2\n\x00\x00\x00\x01x", response("OK"), after_sub=True),
    fatal(b"PUB t1\n\x00\x10\x00\x01" + 1048577 * b"x",
          "E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
)

MPUB = (
    stays(b"MPUB t1\n\x00\x00\x00\x0e\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x01b",
          response("OK")),
    fatal(b"MPUB\n", "E_INVALID MPUB insufficient number of parameters"),
    fatal(b"MPUB b$d\n\x00\x00\x00\t\x00\x00\x00\x01\x00\x00\x00\x01a",
          'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "b$d" is not valid'),
    fatal(b"MPUB t1\n\x00\x00\x00\x04\x00\x00\x00\x00", "E_BAD_BODY MPUB invalid message count 0"),
    fatal(b"MPUB t1\n\x00\x00\x00\x00", "E_BAD_BODY MPUB invalid body size 0"),
    fatal(b"MPUB t1\n\xff\xff\xff\xff", "E_BAD_BODY MPUB invalid body size -1"),
    fatal(b"MPUB t1\n\x00P\x00\x01", "E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    fatal(b"MPUB t1\n\x00\x00\x00\r\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x00",
          "E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
    fatal(b"MPUB t1\n\x00\x00\x00d\x00\x00\x00\x01\x00\x10\x00\x01",
          "E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
    fatal(b"MPUB t1\n\x00\x00\x00d\xff\xff\xff\xff", "E_BAD_BODY MPUB invalid message count -1"),
    fatal(b"MPUB t1\n\x00\x00\x00d\x00\x10\x00\x00",
          "E_BAD_BODY MPUB invalid message count 1048576"),
    # The largest count that is allowed: nsqd waits for the messages.
    stays(b"MPUB t1\n\x00\x00\x00d\x00\x0f\xff\xff", mid_body=True),
    # Only the counts inside are read: small outer body size.
    stays(b"MPUB t1\n\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x01a", response("OK")),
    # Only the counts inside are read: large outer body size.
    stays(b"MPUB t1\n\x00\x00\x01\x90\x00\x00\x00\x01\x00\x00\x00\x01aNOP\n", response("OK")),
)

DPUB = (
    stays(b"DPUB t1 100\n\x00\x00\x00\x01x", response("OK")),
    fatal(b"DPUB t1\n\x00\x00\x00\x01x", "E_INVALID DPUB insufficient number of parameters"),
    fatal(b"DPUB b$d 100\n\x00\x00\x00\x01x", 'E_BAD_TOPIC DPUB topic name "b$d" is not valid'),
    fatal(b"DPUB t1 abc\n\x00\x00\x00\x01x", "E_INVALID DPUB could not parse timeout abc"),
    fatal(b"DPUB t1 -1\n\x00\x00\x00\x01x", "E_INVALID DPUB could not parse timeout -1"),
    stays(b"DPUB t1 3600000\n\x00\x00\x00\x01x", response("OK")),
    fatal(b"DPUB t1 3600001\n\x00\x00\x00\x01x",
          "E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    fatal(b"DPUB t1 100\n\x00\x00\x00\x00", "E_BAD_MESSAGE DPUB invalid message body size 0"),
    fatal(b"DPUB t1 100\n\x00\x10\x00\x01", "E_BAD_MESSAGE DPUB message too big 1048577 > 1048576"),
    stays(b"DPUB t1 0\n\x00\x00\x00\x01x", response("OK")),
)

LAYERS = (
    agreed(b'IDENTIFY\n\x00\x00\x00+{"feature_negotiation":true,"deflate":true}',
           deflate=True),
    agreed(b'IDENTIFY\n\x00\x00\x00={"feature_negotiation":true,"deflate":true,'
           b'"deflate_level":9}', deflate=True),
    agreed(b'IDENTIFY\n\x00\x00\x00={"feature_negotiation":true,"deflate":true,'
           b'"deflate_level":3}', deflate=True, deflate_level=3),
    agreed(b'IDENTIFY\n\x00\x00\x00*{"feature_negotiation":true,"snappy":true}',
           snappy=True),
)

TABLE = {
    "magic": MAGIC,
    "IDENTIFY": IDENTIFY,
    "AUTH": AUTH,
    "unknown": UNKNOWN,
    "SUB": SUB,
    "RDY": RDY,
    "FIN": FIN,
    "REQ": REQ,
    "TOUCH": TOUCH,
    "CLS": CLS,
    "PUB": PUB,
    "MPUB": MPUB,
    "DPUB": DPUB,
}
