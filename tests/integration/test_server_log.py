"""The log of nsqd: the embedded one says in the same words what the real one says."""

import json
import logging
import re
from collections import Counter

import pytest

from nsqclient.devserver import Nsqd
from tests.support.servers.http_api import HttpApi
from tests.support.servers.raw_client import RawClient
from tests.support.servers.raw_socket import ask
from tests.support.waiting import wait_until

#: Lines that both have, without what varies.
COMPARED = re.compile(
    r"nsqd v1.3.0 \(built w/|ID: 7$|TCP: (new client|closing)|\[ADDR\] - E_(?!BAD_PROTOCOL)"
    r"|NSQ: bye|TOPIC\(\S+\): (created|new|deleting)"
)
IDENTITY = {
    "client_id": "me", "hostname": "here", "user_agent": "test/1", "feature_negotiation": True,
    "heartbeat_interval": 5000, "sample_rate": 0, "unknown": 1,
}


def use(address, post):
    """Connections that end well and badly; each has ended before the next."""
    for data in (
        b"GET ", b"  V2FOO\n", b"  V2CLS\n", b"  V2PUB t\n\0\0\0\0", b"  V2PUB a$b\n",
        b"  V2SUB t c\nRDY -1\n", b"  V2SUB x#ephemeral y#ephemeral\nCLS\nCLS\n",
        b"  V2PUB t\n\0\0\0\x01xFOO\n",
    ):
        ask(address, data)
    with RawClient(address) as client:
        body = json.dumps(IDENTITY).encode()
        client.ask(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        client.subscribe("t", "c")
        client.ask(b"FIN 0123456789abcdef\n")
    for path in ("/topic/create?topic=n", "/channel/create?topic=n&channel=c",
                 "/channel/delete?topic=n&channel=c", "/topic/delete?topic=n"):
        post(path)


def lines(text):
    """Count the lines that both servers log, without addresses and times."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        level, _, words = re.sub(r"^\[nsqd\] \S+ \S+ ", "", line).partition(": ")
        words = re.sub(r"127\.0\.0\.1:\d+", "ADDR", words)
        # To some errors nsqd adds where they come from.
        words = re.sub(r"^(\[ADDR\] - E_.*?) - .*", r"\1", words)
        words = re.sub(r"built w/\S+\)", "built w/)", words)
        if COMPARED.match(words):
            found[f"{level}: {words}"] += 1
    return found


def has_ended(text):
    """Whether each connection that began has ended."""
    return text.count("new client(") == text.count("exiting ioloop") + text.count(
        "bad protocol") + text.count(") is gone")


@pytest.mark.real
def test_the_log_is_that_of_the_real_one(real_nsqd, caplog):
    """Every error that a client gets, topics, channels, start and end."""
    real = real_nsqd(node_id=7)
    use(real.tcp_address, real.post)
    wait_until(lambda: has_ended(real.log()))
    real.stop()
    caplog.set_level(logging.INFO, "nsqclient.devserver")

    def logged():
        return "\n".join(f"{each.levelname}: {each.getMessage()}" for each in caplog.records)

    with Nsqd(node_id=7) as embedded:
        use(embedded.tcp_address, HttpApi(embedded.http_address).post)
        wait_until(lambda: has_ended(logged()))
    expected = lines(real.log())
    assert len(expected) > 15
    assert lines(logged()) == expected
