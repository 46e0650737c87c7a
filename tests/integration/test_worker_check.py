"""``nsqclient worker --check`` at both kinds of server: rights, TLS; nothing is changed."""

import pytest

from nsqclient import BatchHandler, Config
from nsqclient.http import nsqd
from nsqclient.worker.group import ConsumerGroup, check_group
from nsqclient.worker.registry import register
from tests.support.servers.auth_server import AuthServer, granted
from tests.support.waiting import wait_until


def handle(message):
    raise AssertionError("a check takes no message")


@pytest.fixture
def check(monkeypatch):
    def run(server, *places, lookupd=None, **options):
        monkeypatch.setattr(nsqd, "find_http_address", lambda *_: server.address)
        addresses = {"nsqd_tcp_addresses": [server.tcp_address]} if lookupd is None else {
            "lookupd_http_addresses": [lookupd.http_address]}
        group = ConsumerGroup(Config(**options), addresses)
        for place in places or ["events/c"]:
            group.add(register(*place.split("/"), handle))
        lines: list[str] = []
        is_well = check_group(group, lines.append)
        return is_well, [line for line in lines if not line.startswith("OK     consuming")]

    return run


def test_a_topic_without_a_channel_and_an_unlisted_topic_are_noted(
    server_factory, lookupd_factory, check
):
    """Messages of such a topic wait for the first channel. A mistyped topic is not listed."""
    lookupd = lookupd_factory()
    server = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address])
    server.post("/pub", b"x", topic="events")
    wait_until(lambda: "events" in lookupd.get("/topics").json()["topics"])
    is_well, lines = check(server, "events/c", "typo/c", lookupd=lookupd)
    assert is_well
    assert [line for line in lines if line.startswith("NOTE")] == [
        "NOTE   no nsqlookupd lists the topic typo: check its spelling, or publish to it",
        f"NOTE   nsqd {server.tcp_address}: events has 1 waiting message and no channel: the first"
        " channel takes them"]
    assert server.stats("events")["channels"] == []


@pytest.mark.parametrize(("handler", "options", "note"), [
    (handle, {"workers": 8, "max_in_flight": 2}, "max_in_flight 2 leaves 6 of 8 workers idle"),
    (BatchHandler(handle, size=100), {"max_in_flight": 3}, "max_in_flight 3 is less than the"),
    (BatchHandler(handle, size=100), {"workers": 2}, ""),
])
def test_a_max_in_flight_that_is_too_small_is_noted(server_factory, handler, options, note):
    server = server_factory()
    group = ConsumerGroup(Config(), {"nsqd_tcp_addresses": [server.tcp_address]})
    group.add(register("events", "c", handler, **options))
    lines: list[str] = []
    assert check_group(group, lines.append)
    notes = [line for line in lines if line.startswith("NOTE")]
    assert notes == [] if not note else notes[0].startswith(f"NOTE   events/c: {note}")


@pytest.fixture
def guarded(server_factory):
    with AuthServer(lambda query: granted()) as auth:
        server = server_factory(auth_http_addresses=[auth.address])
        for topic in ("events", "others"):
            server.create(topic, "c")
        yield server


def test_a_right_is_checked_where_the_channel_exists(guarded, check):
    guarded.post("/pub", b"x", topic="events")
    assert check(guarded, auth_secret="s") == (True, [
        f"OK     nsqd {guarded.tcp_address}",
        f"OK     nsqd {guarded.tcp_address} permits to consume events/c"])
    channel = guarded.stats("events", "c")
    assert (channel["depth"], channel["in_flight_count"], channel["message_count"]) == (1, 0, 1)


def test_a_missing_right_is_found(guarded, check):
    is_well, lines = check(guarded, "others/c", "events/c", auth_secret="s")
    assert not is_well and len(lines) == 3
    assert lines[1].startswith(f"WRONG  nsqd {guarded.tcp_address}, others/c: ")
    assert "AUTH failed for SUB" in lines[1] and "permits to consume events/c" in lines[2]


def channels(server):
    return {topic["topic_name"]: sorted(channel["channel_name"] for channel in topic["channels"])
            for topic in server.stats()["topics"]}


@pytest.mark.parametrize("place", ["new/c", "events/new", "events/c#ephemeral"])
def test_a_check_creates_and_deletes_nothing(guarded, check, place):
    """A right that only a SUB would show, which changes something, is said to be unknown."""
    guarded.create("events", "c#ephemeral")
    before = channels(guarded)
    is_well, lines = check(guarded, place, auth_secret="s")
    assert is_well and lines[1].startswith(f"NOTE   whether nsqd permits to consume {place} is not")
    assert channels(guarded) == before == {"events": ["c", "c#ephemeral"], "others": ["c"]}


def test_without_authentication_there_is_nothing_to_ask(server, check):
    server.create("events", "c")
    assert check(server) == (True, [f"OK     nsqd {server.tcp_address}"])


def test_an_nsqd_that_requires_tls_is_found(server_factory, check, certificates):
    server = server_factory(tls_cert=certificates.server, tls_key=certificates.server_key,
                            tls_required=True)
    is_well, [line] = check(server)
    assert not is_well and line.startswith(f"WRONG  nsqd {server.tcp_address}: ")
    assert "TLS" in line


def test_an_nsqlookupd_that_does_not_answer_is_named_once():
    group = ConsumerGroup(Config(), {"lookupd_http_addresses": ["127.0.0.1:1"]})
    group.add(register("events", "c", handle))
    lines: list[str] = []
    assert not check_group(group, lines.append)
    assert lines[1].startswith("WRONG  nsqlookupd 127.0.0.1:1: ") and "see that" in lines[1]
    assert lines[1].count("127.0.0.1:1") == 1
