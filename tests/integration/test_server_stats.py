"""End-to-end latencies, and the ports that are registered, alike on both kinds of server."""

from tests.support.servers.raw_client import RawClient
from tests.support.waiting import wait_until


def finish_two(server):
    for channel in ("c", "other"):
        server.post("/topic/create", topic="t")
        server.post("/channel/create", topic="t", channel=channel)
    for _ in range(2):
        server.post("/pub", b"x", topic="t")
    with RawClient(server.tcp_address) as consumer:
        consumer.subscribe("t", "c")
        consumer.send(b"RDY 2\n")
        for _ in range(2):
            consumer.send(b"FIN %b\n" % consumer.read_message()[0])
        wait_until(lambda: server.stats("t", "c")["depth"] == 0
                   and server.stats("t", "c")["in_flight_count"] == 0)


def test_latency_percentiles_are_in_stats(server_factory, server_kind):
    """Of a channel, and of the topic's channels together; from publish to FIN, in ns."""
    given = [1.0, 0.99, 0.5] if server_kind == "embedded" else ["1.0,0.99", "0.5"]
    server = server_factory(e2e_processing_latency_percentile=given)
    finish_two(server)
    for shown in (server.stats("t"), server.stats("t", "c")):
        latency = shown["e2e_processing_latency"]
        assert latency["count"] == 2
        assert [each["quantile"] for each in latency["percentiles"]] == [1, 0.99, 0.5]
        assert all(0 < each["value"] < 60e9 for each in latency["percentiles"])
    other = server.stats("t", "other")["e2e_processing_latency"]
    assert other == {"count": 0, "percentiles": [
        {"quantile": quantile, "value": 0} for quantile in (1, 0.99, 0.5)]}


def test_ports_to_register_can_be_given(server_factory, lookupd_factory):
    """nsqlookupd gives them to clients; /info has those that are open."""
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address],
                            broadcast_tcp_port=14150, broadcast_http_port=70000)
    wait_until(lambda: lookupd.get("/nodes").json()["producers"])
    producer, = lookupd.get("/nodes").json()["producers"]
    assert (producer["tcp_port"], producer["http_port"]) == (14150, 70000)
    assert server.tcp_address.endswith(f":{server.get('/info').json()['tcp_port']}")
