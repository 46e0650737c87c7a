"""The nsqds on which a consumer that only looks may subscribe."""

from types import SimpleNamespace

import pytest

from nsqclient.cluster.look_guard import LookGuard, LookRefusedError, Obstacle, refusal
from nsqclient.errors import ConnectError, NSQError


@pytest.mark.parametrize("channel, channels, options, expected", [
    ("x#ephemeral", ["c", "y#ephemeral"], {}, ""),
    ("x#ephemeral", ["y#ephemeral"], {}, "the first one would take the messages that wait"),
    ("x#ephemeral", [], {"has_partitions": True}, ""),
    ("dead", ["dead"], {}, ""),
    ("dead", ["c"], {"has_partitions": True}, "a subscription would create it"),
    ("dead", [], {"may_create": True}, ""),
])
def test_a_subscription_must_change_nothing(channel, channels, options, expected):
    """An ephemeral channel beside a permanent one, or a channel that exists, does no harm."""
    reason = refusal("t", channel, channels, **options)
    assert expected in reason if expected else reason == ""


class Server:
    def __init__(self):
        self.answer = None

    def topic(self, address):
        if isinstance(self.answer, NSQError):
            raise self.answer
        return None if self.answer is None else SimpleNamespace(
            channels=[SimpleNamespace(name=name) for name in self.answer])


def refused(guard):
    with pytest.raises(LookRefusedError) as caught:
        guard.check("nsqd:4150", False)
    return caught.value


def test_each_subscription_is_checked_anew():
    server = Server()
    guard = LookGuard("t", "x#ephemeral", server.topic)
    first = refused(guard)
    assert (first.obstacle, first.is_repeated) == (Obstacle.NO_TOPIC, False)
    assert refused(guard).is_repeated
    server.answer = []
    second = refused(guard)
    assert (second.obstacle, second.is_repeated) == (Obstacle.NO_CHANNEL, False)
    server.answer = ["c"]
    guard.check("nsqd:4150", False)
    server.answer = []
    assert not refused(guard).is_repeated


def test_what_cannot_be_asked_is_refused():
    """Unless it cannot be reached at all, which is the better reason."""
    server = Server()
    server.answer = NSQError("no HTTP")
    error = refused(LookGuard("t", "x#ephemeral", server.topic))
    assert error.obstacle is Obstacle.NOT_KNOWN and "no HTTP" in str(error)

    def probe(address):
        raise ConnectError(address, "refused")

    with pytest.raises(ConnectError, match="refused") as caught:
        LookGuard("t", "x#ephemeral", server.topic, probe).check("nsqd:4150", False)
    assert not isinstance(caught.value, LookRefusedError)
