"""``auth_secret`` is not sent to an nsqlookupd just because another one lists it."""

import threading
from contextlib import contextmanager

import pytest

from nsqclient import Config
from nsqclient.partitioned import Consumer
from nsqclient.partitioned.metadata import MetadataCache
from nsqclient.runtime.deadline import Deadline
from tests.support.faults.hostile import HttpApi
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


@pytest.fixture
def stranger(leak_guard):
    """A server that records requests, and answers that it needs a secret."""
    with recording() as server:
        server.status = 401
        yield server


@pytest.fixture
def lookupd(stranger):
    """A partitioned nsqlookupd that lists the stranger, whose host is not configured."""
    def respond(path, query):
        if path == "listlookup":
            nodes = [{"ID": "x", "NodeIP": "localhost", "HttpPort": stranger.address.split(":")[1]}]
            return 200, {"lookupdnodes": nodes, "lookupdleader": {"ID": "x"}}
        return 200, {"channels": [], "producers": [], "partitions": {}, "meta": {}}

    with HttpApi(respond) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.port}"
        server.shutdown()
        thread.join(20)


@contextmanager
def asking(kind, lookupd, config):
    """A consumer, or the part of a producer that asks nsqlookupds."""
    if kind == "consumer":
        with Consumer("t", "c", lambda message: None, lookupd_http_addresses=[lookupd],
                      config=config):
            yield
    else:
        tables = MetadataCache([lookupd], config)
        tables.routes("t", Deadline(20))
        yield
        tables.stop(Deadline(20))


@pytest.mark.parametrize("hosts, sent", [("", None), ("localhost", "Bearer hush")])
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_secret_is_not_sent_to_a_listed_host(lookupd, stranger, kind, hosts, sent, caplog):
    config = Config(auth_secret="hush", lookupd_authorized_hosts=hosts, lookupd_poll_timeout=10)
    with asking(kind, lookupd, config):
        wait_until(lambda: stranger.requests)
        assert {one.headers.get("Authorization") for one in stranger.requests} == {sent}
        if sent is None:
            wait_until(lambda: "lookupd_authorized_hosts" in caplog.text)
    assert "hush" not in caplog.text
