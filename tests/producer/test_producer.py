"""The public face of a Producer."""

from __future__ import annotations

from nsqclient import Producer


def test_a_producer_shows_its_documented_api_and_nothing_else():
    """The names without underscore are those of the reference."""
    with Producer(["127.0.0.1:4150"]) as producer:
        shown = {name for name in dir(producer) if not name.startswith("_")}
    assert shown == {
        "close", "config", "flush", "ping", "publish", "publish_async", "publish_json",
        "publish_many", "set_tracing", "stats",
    }
