"""The embedded nsqd's HTTP API: statuses, codes, and what they leave behind.

The answers were compared with the real server's; see the tests of integration for that.

The bodies of /mpub, at the end, are tested by value.
"""

import logging

import pytest
import requests

from nsqclient import ConfigError
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.devserver.http_server import HTTPError
from nsqclient.devserver.nsqd_http import read_binary, read_lines
from tests.support.servers.raw_client import RawClient
from tests.support.servers.raw_socket import connect
from tests.support.waiting import wait_until


@pytest.fixture
def nsqd(leak_guard):
    """A running nsqd with small limits."""
    with Nsqd(max_msg_size=100, max_body_size=1000) as nsqd:
        yield nsqd


@pytest.fixture
def call(nsqd):
    """Send a request; return status and body."""

    def call(method, path, body=b""):
        answer = requests.request(
            method, f"http://{nsqd.http_address}{path}", data=body, timeout=10
        )
        return answer.status_code, answer.text

    return call


def error(code: str) -> str:
    """The body of an error."""
    return f'{{"message":"{code}"}}'


def bodies(nsqd: Nsqd, topic: str, channel: str | None = None) -> list[bytes]:
    """What a topic or channel holds."""
    return [message.body for message in nsqd.messages(topic, channel)]


def test_pub_stores_the_body(nsqd, call):
    """A body is stored byte for byte, and the response is OK."""
    assert call("POST", "/pub?topic=t", b"a\n\0b") == (200, "OK")
    assert bodies(nsqd, "t") == [b"a\n\0b"]


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("topic=b$d", b"x" * 101, 413, "MSG_TOO_BIG"),
        ("topic=b$d", b"", 400, "MSG_EMPTY"),
        ("topic=a;b", b"x", 400, "INVALID_TOPIC"),
        ("", b"x", 400, "MISSING_ARG_TOPIC"),
        ("topic=b$d", b"x", 400, "INVALID_TOPIC"),
        ("topic=foo%0a", b"x", 400, "INVALID_TOPIC"),
        ("topic=t&defer=", b"x", 400, "INVALID_DEFER"),
        ("topic=t&defer=-1", b"x", 400, "INVALID_DEFER"),
        ("topic=t&defer=1.0", b"x", 400, "INVALID_DEFER"),
        ("topic=t&defer=3600001", b"x", 400, "INVALID_DEFER"),
    ],
)
def test_pub_checks_in_nsqds_order(nsqd, call, query, body, status, code):
    """Size, emptiness, topic and delay are checked in this order."""
    assert call("POST", f"/pub?{query}", body) == (status, error(code))
    # nsqd's quirk: the topic is made before the delay is looked at.
    assert nsqd.has_topic("t") == (code == "INVALID_DEFER")


def test_a_deferred_message_waits_in_the_channel(nsqd, call):
    """A message with a delay is deferred once it reaches a channel."""
    nsqd.create_topic("t")
    nsqd.create_channel("t", "c")
    assert call("POST", "/pub?topic=t&defer=3600000", b"x") == (200, "OK")
    assert [message.state for message in nsqd.messages("t", "c")] == ["deferred"]


def test_mpub_publishes_each_line(nsqd, call):
    """An empty body is allowed too."""
    assert call("POST", "/mpub?topic=t", b"a\n\nb") == (200, "OK")
    assert call("POST", "/mpub?topic=t", b"") == (200, "OK")
    assert bodies(nsqd, "t") == [b"a", b"b"]


@pytest.mark.parametrize("flag", ["binary=true", "binary=1", "binary=", "binary=yes"])
def test_mpub_reads_the_binary_form(nsqd, call, flag):
    """All flags but those of false mean binary."""
    body = b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02b\n"
    assert call("POST", f"/mpub?topic=t&{flag}", body) == (200, "OK")
    assert bodies(nsqd, "t") == [b"a", b"b\n"]


def test_topic_and_channel_are_created_paused_emptied_and_deleted(nsqd, call):
    """Each request gets an empty 200."""
    for path in ("/topic/create?topic=t", "/topic/create?topic=t",
                 "/channel/create?topic=t&channel=c", "/topic/pause?topic=t",
                 "/channel/pause?topic=t&channel=c"):
        assert call("POST", path, b"ignored") == (200, "")
    (topic,) = nsqd.stats()["topics"]
    assert (topic["paused"], topic["channels"][0]["paused"]) == (True, True)
    call("POST", "/pub?topic=t", b"x")
    for path in ("/topic/empty?topic=t", "/topic/unpause?topic=t"):
        assert call("POST", path) == (200, "")
    call("POST", "/pub?topic=t", b"y")
    assert bodies(nsqd, "t", "c") == [b"y"]
    for path in ("/channel/empty?topic=t&channel=c", "/channel/unpause?topic=t&channel=c"):
        assert call("POST", path) == (200, "")
    assert bodies(nsqd, "t", "c") == []
    assert call("POST", "/channel/delete?topic=t&channel=c") == (200, "")
    assert call("POST", "/topic/delete?topic=t") == (200, "")
    assert nsqd.stats()["topics"] == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topic/create", 400, "MISSING_ARG_TOPIC"),
        ("/topic/create?topic=b$d", 400, "INVALID_TOPIC"),
        ("/topic/delete", 400, "MISSING_ARG_TOPIC"),
        ("/topic/delete?topic=b$d", 404, "TOPIC_NOT_FOUND"),
        ("/topic/empty?topic=b$d", 404, "TOPIC_NOT_FOUND"),
        ("/topic/empty?topic=t", 404, "TOPIC_NOT_FOUND"),
        ("/topic/pause?topic=t", 404, "TOPIC_NOT_FOUND"),
        ("/topic/unpause?topic=b$d", 404, "TOPIC_NOT_FOUND"),
        ("/channel/create?topic=b$d", 400, "INVALID_ARG_TOPIC"),
        ("/channel/create?topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("/channel/create?topic=t&channel=b$d", 400, "INVALID_ARG_CHANNEL"),
        ("/channel/create?topic=t&channel=c", 404, "TOPIC_NOT_FOUND"),
        ("/channel/delete?topic=there&channel=c", 404, "CHANNEL_NOT_FOUND"),
        ("/channel/empty?topic=there&channel=c", 404, "CHANNEL_NOT_FOUND"),
        ("/channel/pause?topic=there&channel=c", 404, "CHANNEL_NOT_FOUND"),
    ],
)
def test_missing_and_invalid_arguments_have_nsqds_codes(nsqd, call, path, status, code):
    """Each endpoint has nsqd's own codes."""
    nsqd.create_topic("there")
    assert call("POST", path) == (status, error(code))
    assert not nsqd.has_topic("t")


def test_ping_info_and_stats_answer(nsqd, call):
    """The ports in /info are the real ones; /stats is JSON, whatever is asked for."""
    assert call("GET", "/ping") == (200, "OK")
    info = requests.get(f"http://{nsqd.http_address}/info", timeout=10).json()
    assert f"127.0.0.1:{info['tcp_port']}" == nsqd.tcp_address
    assert f"127.0.0.1:{info['http_port']}" == nsqd.http_address
    for query in ("", "?format=text", "?format=json&topic=t"):
        assert call("GET", f"/stats{query}")[1].startswith('{"version":"1.3.0"')


def test_stats_show_clients_and_producers(nsqd):
    """A consumer is listed under its channel, a connection that published under producers."""
    with RawClient(nsqd.tcp_address) as client:
        client.subscribe("t", "c")
        client.ask(b"PUB t\n\0\0\0\x01x")
        url = f"http://{nsqd.http_address}/stats?format=json&include_mem=0"
        stats = requests.get(url, timeout=10).json()
        assert len(stats["topics"][0]["channels"][0]["clients"]) == 1
        assert stats["producers"][0]["pub_counts"] == [{"topic": "t", "count": 1}]
        without = requests.get(url + "&include_clients=false", timeout=10).json()
        assert without["topics"][0]["channels"][0]["clients"] is None
        assert (without["producers"], "memory" in without) == (None, False)


def test_log_level_changes_at_once(call, caplog):
    """It is the level of the embedded servers' log, from the next line on."""
    logger = logging.getLogger("nsqclient.devserver")
    assert call("GET", "/config/log_level") == (200, "2")
    assert call("PUT", "/config/log_level", b"Error") == (200, "4")
    assert call("GET", "/config/log_level") == (200, "4")
    assert not logger.isEnabledFor(logging.WARNING) and logger.isEnabledFor(logging.ERROR)
    assert call("PUT", "/config/log_level", b"debug") == (200, "1")
    assert logger.isEnabledFor(logging.DEBUG)
    assert call("PUT", "/config/log_level", b"loud") == (400, error("INVALID_VALUE"))
    assert call("PUT", "/config/log_level") == (413, error("INVALID_VALUE"))


def test_stop_restores_the_log_level():
    """The level of before is restored."""
    logger = logging.getLogger("nsqclient.devserver")
    former = logger.level
    with Nsqd(log_level="warn") as nsqd:
        assert logger.level == logging.WARNING and nsqd.log_level.number == 3
    nsqd.stop()
    assert logger.level == former
    with pytest.raises(ConfigError, match="log_level"):
        Nsqd(log_level="loud")


def test_config_has_the_options_that_can_be_changed(call):
    """Others are no options there."""
    for method, body in (("GET", b""), ("PUT", b"1")):
        assert call(method, "/config/msg_timeout", body) == (400, error("INVALID_OPTION"))


def test_nsqlookupds_can_be_changed(nsqd, call):
    """An nsqlookupd that is put is registered with at once; null means none."""
    nsqd.create_topic("t")
    with Nsqlookupd() as lookupd:
        path = "/config/nsqlookupd_tcp_addresses"
        addresses = f'["{lookupd.tcp_address}"]'
        assert call("PUT", path, addresses.encode()) == (200, addresses)
        url = f"http://{lookupd.http_address}/lookup?topic=t"
        assert len(requests.get(url, timeout=10).json()["producers"]) == 1
        assert call("PUT", path, b"null") == (200, "[]")
        wait_until(lambda: requests.get(url, timeout=10).json()["producers"] == [])
        for bad in (b"x", b"[1]", b"{}"):
            assert call("PUT", path, bad) == (400, error("INVALID_VALUE"))


def test_publish_during_stop_is_503(nsqd, call):
    """The message is not stored."""
    nsqd.create_topic("t")
    with nsqd._engine as broker:
        broker.is_exiting = True
    assert call("POST", "/pub?topic=t", b"x") == (503, error("EXITING"))
    assert call("POST", "/pub?topic=new", b"x") == (503, error("EXITING"))
    assert call("POST", "/channel/create?topic=t&channel=c") == (503, error("EXITING"))


def test_http_on_the_tcp_port_gets_an_error_frame(nsqd):
    """A browser at the TCP port gets the protocol's error, and the connection ends."""
    with connect(nsqd.tcp_address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(100) == b"\0\0\0\x12\0\0\0\x01E_BAD_PROTOCOL"


MAX_MSG = 10


def binary(*messages: bytes, count: int | None = None) -> bytes:
    """MPUB's binary form."""
    parts = [(len(messages) if count is None else count).to_bytes(4, "big", signed=True)]
    for message in messages:
        parts += [len(message).to_bytes(4, "big"), message]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [b"a"]),
        (b"a\n\nb\r\nc\n", [b"a", b"b\r", b"c"]),
        (b"x" * 10, [b"x" * 10]),
        (b"xxxx\n" * 10, [b"xxxx"] * 10),
    ],
)
def test_each_line_is_a_message(data, messages):
    """Empty lines are dropped, the last needs no newline."""
    assert read_lines(data, MAX_MSG) == messages


def test_a_line_over_the_limit_is_rejected():
    """None of them is stored."""
    with pytest.raises(HTTPError) as caught:
        read_lines(b"a\n" + b"x" * 11, MAX_MSG)
    assert (caught.value.status, caught.value.code) == (413, "MSG_TOO_BIG")


def test_binary_body_has_a_count_and_sizes():
    """Bytes after the last message are ignored."""
    assert read_binary(binary(b"a", b"b\nc"), MAX_MSG) == [b"a", b"b\nc"]
    assert read_binary(binary(b"a") + b"more", MAX_MSG) == [b"a"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "BAD_BODY"),
        (b"\0\0", "BAD_BODY"),
        (binary(), "BAD_BODY"),
        (binary(b"a", count=-1), "BAD_BODY"),
        (binary(b"a", count=10), "BAD_MESSAGE"),
        (binary(b"a", count=2), "BAD_MESSAGE"),
        (binary(b"a", b""), "BAD_MESSAGE"),
        (binary(b"a", b"x" * 11), "BAD_MESSAGE"),
        (binary(b"a", b"bc")[:-1], "BAD_MESSAGE"),
    ],
)
def test_invalid_binary_body_is_rejected(data, code):
    """A bad count is BAD_BODY, all other errors are BAD_MESSAGE."""
    with pytest.raises(HTTPError) as caught:
        read_binary(data, MAX_MSG)
    assert (caught.value.status, caught.value.code) == (413, code)
