"""A rejected option is an error before a message arrives: reading and writing. No JVM."""

import pyarrow as pa
import pytest

from nsqclient.config import Config
from nsqclient.partitioned.discovery import lookup
from nsqclient.errors import NegotiationError, NSQError
from nsqclient.spark.reading.batch_reader import NsqBatchReader
from nsqclient.spark.handshakes import check_handshakes
from nsqclient.spark.options import read_options, write_options
from nsqclient.spark.reading.reader import NsqStreamReader
from nsqclient.spark.publishing import publish
from nsqclient.spark.publishing import Columns
from tests.support.waiting import wait_until

TLS = {"tls_v1": "true", "tls_insecure_skip_verify": "true"}
NOT_GRANTED = "does not grant tls_v1, which was requested"


@pytest.fixture
def texts(server, tmp_path):
    return {"topic": "t", "channel": "c", "nsqd": server.tcp_address, **TLS,
            "nsqdHttp": server.http_address, "storage": str(tmp_path / "log")}


@pytest.mark.parametrize("read", [
    lambda texts: NsqStreamReader(read_options(texts, "stream")).initialOffset(),
    lambda texts: NsqBatchReader(read_options({**texts, "storage": ""}, "batch"), "").partitions(),
    lambda texts: NsqBatchReader(
        read_options({**texts, "mode": "drain"}, "batch"), "s").partitions(),
], ids=["stream", "peek", "drain"])
def test_a_read_of_an_empty_channel_fails_without_tls(texts, read):
    """An empty DataFrame would look correct."""
    with pytest.raises(NegotiationError, match=NOT_GRANTED):
        read(texts)


def rows(*bodies):
    return iter([pa.RecordBatch.from_pydict({"body": pa.array([body])}) for body in bodies])


@pytest.mark.parametrize("bodies", [(), (b"x",)])
def test_a_write_fails_without_tls(server, bodies):
    """Immediately, and even without rows."""
    options = write_options({"nsqd": server.tcp_address, "topic": "t", **TLS})
    with pytest.raises(NSQError, match=NOT_GRANTED):
        publish(rows(*bodies), options, Columns("body", False, False))


def test_a_task_without_rows_connects_only_where_it_is_the_first(server, monkeypatch):
    """A batch may have hundreds of empty tasks."""
    monkeypatch.setattr("nsqclient.spark.publishing._task_number", lambda: 7)
    options = write_options({"nsqd": server.tcp_address, "topic": "t", **TLS})
    assert publish(rows(), options, Columns("body", False, False)).messages == 0


def test_servers_that_cannot_be_reached_are_left_out(server):
    check_handshakes(["127.0.0.1:1", server.tcp_address], ["127.0.0.1:1"], "t", Config())


@pytest.mark.parametrize("topic", ["t", ""])
def test_nsqds_are_found_through_nsqlookupd(server_factory, lookupd_factory, topic):
    lookupd = lookupd_factory()
    nsqd = server_factory(
        lookupd_tcp_addresses=[lookupd.tcp_address], broadcast_address="127.0.0.1")
    nsqd.post("/topic/create", topic="t")
    wait_until(lambda: lookup(lookupd.http_address, "t", Config()), 30, "nsqlookupd lists it")
    config = Config.from_strings(TLS)
    with pytest.raises(NegotiationError, match=NOT_GRANTED):
        check_handshakes([], [lookupd.http_address], topic, config)
    check_handshakes([], [lookupd.http_address], "other", config)
