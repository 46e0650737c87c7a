"""The handshake with a scripted peer: the order of the commands, and the errors."""

import json
import logging

import pytest

from nsqclient.config import Config
from nsqclient.connection.handshake import NsqdSocket, Subscribe
from nsqclient.errors import (
    NegotiationError, NSQError, PartitionError, RemoteProtocolError, TLSError,
)
from nsqclient.protocol.events import FatalError
from nsqclient.protocol.frames import encode_frame
from nsqclient.protocol.layers import DeflateLayer, SnappyLayer

ADDRESS = "127.0.0.1:4150"
OK = encode_frame(0, b"OK")


def answer(**fields):
    return encode_frame(0, json.dumps({"version": "1.3.0", **fields}).encode())


def play(config, *frames, subscribe=None):
    """Negotiate against what a server says; return what was sent before each answer."""
    conn = NsqdSocket(ADDRESS, config)
    core = conn._core
    coming = list(frames)
    sent = []

    def wait_for(wanted):
        sent.append(core.data_to_send())
        while True:
            for event in core.take_events():
                if isinstance(event, FatalError):
                    raise event.error
                if isinstance(event, wanted):
                    return event
            core.receive_data(coming.pop(0))

    try:
        conn._negotiate(subscribe, wait_for)
    except NSQError as exc:
        return sent, exc
    assert not coming and not core.has_data_to_send()
    return sent, None


def test_without_features_only_identify_is_sent():
    config = Config(client_id="me")
    sent, error = play(config, answer())
    assert error is None
    assert len(sent) == 1 and sent[0].startswith(b"  V2IDENTIFY\n")
    assert json.loads(sent[0][len(b"  V2IDENTIFY\n") + 4:]) == config.identify_payload()


def test_subscribing_comes_last():
    sent, error = play(Config(), answer(), OK, subscribe=("t", "c"))
    assert error is None and sent[1:] == [b"SUB t c\n"]


@pytest.mark.parametrize("options, layer", [
    ({"snappy": True}, SnappyLayer), ({"deflate": True, "deflate_level": 2}, DeflateLayer),
], ids=["snappy", "deflate"])
def test_a_compression_that_is_granted(options, layer):
    nsqd = layer()
    first, second = nsqd.encode(OK), nsqd.encode(OK)
    granted = {name: True if name != "deflate_level" else 2 for name in options}
    sent, error = play(Config(**options), answer(**granted), first, second, subscribe=("t", "c"))
    assert error is None
    assert layer().decode(sent[2]) == b"SUB t c\n"


@pytest.mark.parametrize("name", ["tls_v1", "snappy", "deflate"])
def test_what_is_not_granted(name):
    sent, error = play(Config(**{name: True}), answer())
    assert type(error) is NegotiationError and name in str(error) and ADDRESS in str(error)
    assert len(sent) == 1


@pytest.mark.parametrize("name", ["tls_v1", "snappy", "deflate"])
def test_what_nobody_asked_for(name):
    """A server that turns something on by itself is no nsqd."""
    sent, error = play(Config(), answer(**{name: True}))
    assert type(error) is RemoteProtocolError and name in str(error) and len(sent) == 1


def test_an_nsqd_that_negotiates_nothing():
    """An old nsqd says OK: fine, unless something was asked for."""
    assert play(Config(), OK)[1] is None
    assert type(play(Config(snappy=True), OK)[1]) is NegotiationError


def test_a_file_that_cannot_be_read_is_reported_first():
    sent, error = play(Config(tls_v1=True, tls_root_ca_file="/none.pem"))
    assert type(error) is TLSError and "/none.pem" in str(error) and sent == []


@pytest.mark.parametrize("asked, server, used", [(9, 6, 6), (6, 6, 6), (3, 6, 3), (5, 0, 1)])
def test_the_lower_deflate_level_is_used(caplog, asked, server, used):
    ok = DeflateLayer().encode(OK)
    with caplog.at_level(logging.INFO):
        _, error = play(Config(deflate=True, deflate_level=asked),
                        answer(deflate=True, deflate_level=server), ok)
    assert error is None
    expected = [f"{ADDRESS}: nsqd lowers the deflate level from {asked} to {used}"]
    assert caplog.messages == (expected if used < asked else [])


def test_auth_where_it_is_required(caplog):
    """AUTH follows IDENTIFY, SUB follows its answer; without TLS a warning says so."""
    identity = encode_frame(0, b'{"identity":"joe"}')
    with caplog.at_level(logging.DEBUG):
        sent, error = play(Config(auth_secret="s3cret"), answer(auth_required=True), identity, OK,
                           subscribe=("t", "c"))
    assert error is None and sent[1:] == [b"AUTH\n\0\0\0\6s3cret", b"SUB t c\n"]
    assert "without TLS" in caplog.text and "as joe" in caplog.text
    assert "s3cret" not in caplog.text


def test_auth_where_it_is_not_required():
    sent, error = play(Config(auth_secret="s3cret"), answer(auth_required=False))
    assert error is None and b"s3cret" not in b"".join(sent)


def test_no_secret_where_one_is_required():
    sent, error = play(Config(), answer(auth_required=True))
    assert type(error) is NegotiationError and "set auth_secret" in str(error) and len(sent) == 1


def test_a_rejected_secret_is_an_auth_error():
    refusal = encode_frame(1, b"E_UNAUTHORIZED AUTH no authorizations found")
    _, error = play(Config(auth_secret="s3cret"), answer(auth_required=True), refusal)
    assert error.code == "E_UNAUTHORIZED" and "s3cret" not in str(error) + repr(error)


@pytest.mark.parametrize(("confirmed", "is_refused"), [("canary", False), ("", True)])
def test_a_tag_must_be_confirmed(confirmed, is_refused):
    """An nsqd that does not know tags would send the messages of all of them."""
    class Tagged(Subscribe):
        def identify_fields(self):
            return {"desired_tag": "canary"}

    wanted = Tagged("t", "c")
    tag = {"desired_tag": confirmed} if confirmed else {}
    frames = [answer(**tag)] + [OK] * (not is_refused)
    sent, error = play(Config(), *frames, subscribe=wanted)
    assert json.loads(sent[0].partition(b"\n")[2][4:])["desired_tag"] == "canary"
    if is_refused:
        assert isinstance(error, NegotiationError) and "desired_tag 'canary'" in str(error)
    else:
        assert error is None and sent[1] == b"SUB t c\n"


def test_a_secret_that_nsqd_repeats_is_not_in_the_error():
    refusal = encode_frame(1, b"E_INVALID cannot parse s3cret here")
    _, error = play(Config(auth_secret="s3cret"), answer(auth_required=True), refusal)
    assert str(error) == "E_INVALID cannot parse *** here"


def test_a_stock_client_does_not_subscribe_at_an_nsqd_of_the_other_kind():
    sent, error = play(Config(), answer(version="0.3.7-HA.1.13.0"), subscribe=("t", "c"))
    assert type(error) is PartitionError and "use nsqclient.partitioned" in str(error)
    assert ADDRESS in str(error) and len(sent) == 1
