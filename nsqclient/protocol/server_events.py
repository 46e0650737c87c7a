"""The events of the server core: commands whose outcome the broker decides.

Every event says in its first line what the I/O side must answer.
"""

from __future__ import annotations

from typing import NamedTuple, Union

from nsqclient.protocol.partition_events import PartitionEvent
from nsqclient.protocol.server_identify import ClientSettings


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
    """No answer on success, else E_FIN_FAILED."""

    message_id: bytes


class Req(NamedTuple):
    """No answer on success, else E_REQ_FAILED. ``delay_ms`` is already within the limits."""

    message_id: bytes
    delay_ms: int


class Touch(NamedTuple):
    """No answer on success, else E_TOUCH_FAILED."""

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
    """No answer: the topic of an MPUB, whose body is not there yet, comes into being."""

    topic: str


class Mpub(NamedTuple):
    """Answer with OK, or E_MPUB_FAILED. All messages or none."""

    topic: str
    bodies: list[bytes]


class Ignored(NamedTuple):
    """No answer and no effect: NOP, and RDY after CLS."""

    line: bytes


Event = Union[
    Identify, Auth, Sub, Rdy, Fin, Req, Touch, Cls, Pub, Dpub, OpenTopic, Mpub, Ignored,
    PartitionEvent,
]
