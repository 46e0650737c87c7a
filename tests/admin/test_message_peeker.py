"""Peeks: copies that take no message, and loans that are requeued."""

import json
import threading
from contextlib import contextmanager

import pytest

from nsqclient import Consumer, DeadLetter
from tests.support.waiting import wait_until


@pytest.fixture
def admin(cluster):
    return cluster.admin(allow_peek=True)


@contextmanager
def peek(admin, **values):
    lines: list[dict] = []

    def run():
        answer = admin.post("/api/live/peek", values)
        lines.extend(json.loads(line) for line in answer.text.splitlines() if line)

    thread = threading.Thread(target=run)
    thread.start()
    yield lines
    thread.join(30)


def has_peek(nsqd, topic="events"):
    return any(each["channel_name"].startswith("peek-") and each["client_count"]
               for each in nsqd.stats(topic)["channels"])


def test_a_peek_shows_copies_and_takes_nothing(cluster):
    cluster.fill("events", "archive", 1)
    admin, nsqd = cluster.admin(allow_peek=True), cluster.nsqds[0]
    with peek(admin, topic="events", count=3, seconds=20) as lines:
        wait_until(lambda: has_peek(nsqd))
        for body in (b"plain", b'{"a":1}', b"\xff\x00"):
            nsqd.post("/pub", body, topic="events")
    head, *messages = lines
    assert sorted(head["nodes"]) == sorted(cluster.addresses) and head["notes"] == []
    assert [each.get("text") or each["base64"] for each in messages] == ["plain", '{"a":1}', "/wA="]
    assert messages[1]["pretty"] == '{\n  "a": 1\n}'
    assert messages[0]["node"] == nsqd.http_address and messages[0]["size"] == 5
    assert nsqd.stats("events", "archive")["depth"] == 4
    wait_until(lambda: not has_peek(nsqd))


def test_a_large_body_is_cut(cluster):
    cluster.fill("events", "archive", 0)
    admin, nsqd = cluster.admin(allow_peek=True), cluster.nsqds[0]
    with peek(admin, topic="events", count=1, seconds=20) as lines:
        wait_until(lambda: has_peek(nsqd))
        nsqd.post("/pub", "ü".encode() * 50_000, topic="events")
    assert lines[1]["truncated"] and lines[1]["size"] == 100_000
    assert len(lines[1]["text"].encode()) <= 65536


def test_a_peek_ends_in_time(cluster):
    cluster.fill("events", "archive", 0)
    answer = cluster.admin(allow_peek=True).post(
        "/api/live/peek", {"topic": "events", "count": 5, "seconds": 0.3})
    assert answer.status_code == 200 and answer.elapsed.total_seconds() < 10


def test_messages_that_wait_for_a_first_channel_are_not_taken(cluster, admin):
    """A topic without a channel is left out: the first channel would take its messages."""
    first, second = cluster.nsqds
    for nsqd in cluster.nsqds:
        nsqd.post("/pub", b"precious", topic="events")
    body = {"topic": "events", "count": 1, "seconds": 0.2}
    wait_until(lambda: cluster.registered("events") == set(cluster.addresses))
    answer = admin.post("/api/live/peek", body)
    assert (answer.status_code, answer.json()["message"]) == (409, "NO_CHANNEL")
    first.post("/channel/create", topic="events", channel="archive")
    head = json.loads(admin.post("/api/live/peek", body).text.splitlines()[0])
    assert head["nodes"] == [first.http_address]
    assert second.http_address in head["notes"][0]
    assert second.stats("events")["depth"] == 1


def test_messages_of_a_loan_are_requeued(cluster, admin):
    cluster.fill("events", "dead", 2)
    body = {"topic": "events", "channel": "dead", "count": 10, "seconds": 20}
    for attempt in (1, 2):
        lines = [line for line in admin.post("/api/live/peek", body).text.splitlines() if line]
        messages = [json.loads(line) for line in lines[1:]]
        assert [each["attempts"] for each in messages] == [attempt] * 4
        wait_until(lambda: [nsqd.stats("events", "dead")["depth"] for nsqd in cluster.nsqds]
                   == [2, 2])


def test_a_loan_from_a_channel_with_consumers_is_rejected(cluster, admin):
    cluster.fill("events", "archive", 0)
    addresses = [nsqd.tcp_address for nsqd in cluster.nsqds]
    with Consumer("events", "archive", print, nsqd_tcp_addresses=addresses):
        wait_until(lambda: all(nsqd.stats("events", "archive")["client_count"]
                               for nsqd in cluster.nsqds))
        answer = admin.post("/api/live/peek", {"topic": "events", "channel": "archive"})
    assert (answer.status_code, answer.json()["message"]) == (409, "CHANNEL_IN_USE")


@pytest.mark.parametrize("values, status", [
    ({"topic": "nope"}, 404), ({"topic": "events", "channel": "nope"}, 404),
    ({"topic": "events", "count": 101}, 400), ({"topic": "events", "seconds": 31}, 400),
    ({"topic": "events", "count": True}, 400), ({"topic": "b$d"}, 400),
])
def test_an_invalid_peek_is_rejected(cluster, values, status):
    cluster.fill("events", "archive", 0)
    assert cluster.admin(allow_peek=True).post("/api/live/peek", values).status_code == status


def test_the_number_of_concurrent_peeks_is_limited(cluster, admin):
    cluster.fill("events", "archive", 0)
    body = {"topic": "events", "count": 1, "seconds": 20}
    with peek(admin, **body), peek(admin, **body), peek(admin, **body), peek(admin, **body):
        nsqd = cluster.nsqds[0]
        wait_until(lambda: len(nsqd.stats("events")["channels"]) == 5, timeout=20)
        answer = admin.post("/api/live/peek", body)
        assert (answer.status_code, answer.json()["message"]) == (429, "TOO_MANY_PEEKS")
        for _ in range(4):
            nsqd.post("/pub", b"x", topic="events")


def test_a_dead_letter_is_shown_by_its_own_body(cluster):
    letter = DeadLetter(b'{"order": 1}', "orders", "billing", reason="no total", attempts=3)
    cluster.fill("orders.dead", "keep", 0)
    for body in (letter.to_envelope(), b"bare"):
        cluster.nsqds[0].post("/pub", body, topic="orders.dead")
    lines = cluster.admin(allow_peek=True).post(
        "/api/live/peek", {"topic": "orders.dead", "channel": "keep", "count": 2, "seconds": 20}
    ).text.splitlines()
    found = {each["text"]: each for each in map(json.loads, filter(None, lines[1:]))}
    shown = found['{"order": 1}']
    assert (shown["size"], shown["pretty"]) == (12, '{\n  "order": 1\n}')
    assert shown["dead_letter"]["topic"] == "orders"
    assert shown["dead_letter"]["reason"] == "no total"
    assert "dead_letter" not in found["bare"]
