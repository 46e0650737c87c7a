"""The states of the client's side of a dialogue, and every legal move between them."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where the dialogue is."""

    NEW = "new"  #: nothing sent
    IDENTIFYING = "identifying"  #: IDENTIFY sent, its answer awaited
    UPGRADING = "upgrading"  #: a byte layer is due, or was pushed and its OK is awaited
    AUTHENTICATING = "authenticating"  #: AUTH sent, its answer awaited
    READY = "ready"  #: may publish, may subscribe
    SUBSCRIBING = "subscribing"  #: SUB sent, its answer awaited
    SUBSCRIBED = "subscribed"  #: messages flow while RDY > 0
    CLOSING = "closing"  #: CLS sent; messages may still arrive
    DRAINING = "draining"  #: CLOSE_WAIT received; no further message will come
    CLOSED = "closed"  #: EOF, or an error after which nsqd closes


class Did(Enum):
    """What moves the machine."""

    SEND_IDENTIFY = "send IDENTIFY"
    GET_IDENTIFY = "answer to IDENTIFY"
    GRANT_LAYERS = "answer to IDENTIFY that grants TLS or compression"
    GET_LAYER_OK = "OK of a layer, one more is due"
    UPGRADED = "OK of the last layer"
    SEND_AUTH = "send AUTH"
    GET_AUTH = "answer to AUTH"
    SEND_SUB = "send SUB"
    GET_SUB = "answer to SUB"
    SEND_CLS = "send CLS"
    GET_CLS = "answer to CLS"
    END = "end of the stream or fatal error"


#: Every legal move. ``docs/topics/protocol.rst`` shows this table; code only looks it up.
TRANSITIONS: dict[tuple[State, Did], State] = {
    (State.NEW, Did.SEND_IDENTIFY): State.IDENTIFYING,
    (State.IDENTIFYING, Did.GET_IDENTIFY): State.READY,
    (State.IDENTIFYING, Did.GRANT_LAYERS): State.UPGRADING,
    (State.UPGRADING, Did.GET_LAYER_OK): State.UPGRADING,
    (State.UPGRADING, Did.UPGRADED): State.READY,
    (State.READY, Did.SEND_AUTH): State.AUTHENTICATING,
    (State.AUTHENTICATING, Did.GET_AUTH): State.READY,
    (State.READY, Did.SEND_SUB): State.SUBSCRIBING,
    (State.SUBSCRIBING, Did.GET_SUB): State.SUBSCRIBED,
    (State.SUBSCRIBED, Did.SEND_CLS): State.CLOSING,
    (State.CLOSING, Did.GET_CLS): State.DRAINING,
    **{(state, Did.END): State.CLOSED for state in State},
}
