"""The embedded nsqd's HTTP API: statuses, codes, and what they leave behind.

The answers were compared with the real server's; see the tests of integration for that.
"""

import logging

import pytest
import requests

from nsqclient import ConfigError
from nsqclient.devserver import Nsqd, Nsqlookupd
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


def test_a_deferred_message_waits_in_the_channel(nsqd, call):
    """A message with a delay is deferred once it reaches a channel."""
    nsqd.create_topic("t")
    nsqd.create_channel("t", "c")
    assert call("POST", "/pub?topic=t&defer=3600000", b"x") == (200, "OK")
    assert [message.state for message in nsqd.messages("t", "c")] == ["deferred"]


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
