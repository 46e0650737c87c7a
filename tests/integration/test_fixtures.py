"""The servers of the integration suite: they start, answer, and come back on the same ports."""

from __future__ import annotations

import pytest

from tests.support.waiting import wait_until


def test_a_published_message_is_counted(server):
    """A message published over HTTP shows in the statistics."""
    server.post("/pub", b"hello", topic="t1")
    assert server.stats("t1")["depth"] == 1
    assert server.stats("none") == {}


def test_a_restart_keeps_ports_and_messages(server):
    """A server stopped in order is back on the same ports with the same messages."""
    server.post("/pub", b"hello", topic="t1")
    server.restart()
    assert server.get("/ping").text == "OK"
    assert server.stats("t1")["depth"] == 1


def test_a_topic_can_be_looked_up(server_factory, lookupd_factory):
    """A topic published to an nsqd can be looked up."""
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    server.post("/pub", b"hello", topic="t1")
    wait_until(lambda: "t1" in lookupd.get("/topics").json()["topics"])
    producer, = lookupd.get("/lookup", topic="t1").json()["producers"]
    assert f"127.0.0.1:{producer['tcp_port']}" == server.tcp_address


@pytest.mark.real
def test_a_killed_nsqd_comes_back(real_nsqd):
    """A real nsqd that was killed starts again on the same ports."""
    server = real_nsqd(msg_timeout=2.0)
    assert server.get("/config/msg_timeout").json() == 2_000_000_000
    server.kill()
    server.start()
    assert server.get("/ping").text == "OK"
