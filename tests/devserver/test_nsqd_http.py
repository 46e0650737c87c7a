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
    with Nsqd(max_msg_size=100, max_body_size=1000) as nsqd:
        yield nsqd


@pytest.fixture
def call(nsqd):
    def call(method, path, body=b""):
        answer = requests.request(
            method, f"http://{nsqd.http_address}{path}", data=body, timeout=10
        )
        return answer.status_code, answer.text

    return call


def error(code: str) -> str:
    return f'{{"message":"{code}"}}'


def test_log_level_changes_at_once(call, caplog):
    """It is the level of the embedded servers' log, from the next line on."""
    logger = logging.getLogger("nsqclient.devserver")
    assert call("GET", "/config/log_level") == (200, "2")
    assert call("PUT", "/config/log_level", b"Error") == (200, "4")
    assert call("GET", "/config/log_level") == (200, "4")
    assert not logger.isEnabledFor(logging.WARNING) and logger.isEnabledFor(logging.ERROR)
    assert call("PUT", "/config/log_level", b"debug") == (200, "1")
    assert logger.isEnabledFor(logging.DEBUG)


def test_stop_restores_the_log_level():
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
        addresses = f'["{lookupd.tcp_address}","{lookupd.tcp_address}"]'
        assert call("PUT", path, addresses.encode()) == (200, f'["{lookupd.tcp_address}"]')
        url = f"http://{lookupd.http_address}/lookup?topic=t"
        assert len(requests.get(url, timeout=10).json()["producers"]) == 1
        assert call("PUT", path, b"null") == (200, "[]")
        wait_until(lambda: requests.get(url, timeout=10).json()["producers"] == [])


def test_publish_during_stop_is_503(nsqd, call):
    nsqd.create_topic("t")
    with nsqd._engine as broker:
        broker.is_exiting = True
    assert call("POST", "/pub?topic=t", b"x") == (503, error("EXITING"))
    assert call("POST", "/pub?topic=new", b"x") == (503, error("EXITING"))
    assert call("POST", "/channel/create?topic=t&channel=c") == (503, error("EXITING"))
