"""A server with unusable answers affects only its own row of the admin page."""

import json
from contextlib import ExitStack, contextmanager

import pytest

from nsqclient.devserver import Nsqd
from tests.support.browser.admin import running_admin
from tests.support.servers.http_recorder import recording

_TOPIC = '{"topic_name": "events", "depth": %s, "message_count": 5, "channels": %s, %s}'
_LATENCY = '"e2e_processing_latency": {"count": 1000000000, "percentiles": [%s]}'


def stats(depth="1", channels="[]", more='"paused": false'):
    return ('{"version": "1.3.0", "health": "OK", "topics": [%s]}' % (
        _TOPIC % (depth, channels, more))).encode()


#: Answers that are not used at all.
UNUSABLE = {
    "lone surrogate in a name": stats(channels=r'[{"channel_name": "\udfff"}]'),
    "NaN": stats(more=_LATENCY % '{"quantile": NaN, "value": Infinity}'),
    "overflow": stats(more=_LATENCY % '{"quantile": 0.5, "value": 1e999}'),
    "10^400": stats(depth="1" + "0" * 400),
    "deep": stats(more='"x": ' + "[" * 400 + "]" * 400),
    "list": b"[]", "object as topics": b'{"topics": {"a": 1}}', "text": b"OK",
}
#: Answers whose odd fields count as nothing.
ODD = {
    "string percentile": stats(more=_LATENCY % '{"quantile": 0.5, "value": "x"}'),
    "list as quantile": stats(more=_LATENCY % '{"quantile": [], "value": 1}'),
    "latency as list": stats(more='"e2e_processing_latency": [1]'),
    "negative counter": stats(channels='[{"channel_name": "c", "message_count": -5}]'),
    "true as depth": stats(depth="true"),
    "list as channel": stats(channels="[[]]"), "object as channels": stats(channels="{}"),
    "list as client": stats(channels='[{"channel_name": "c", "clients": [7]}]'),
    "text as clients": stats(channels='[{"channel_name": "c", "clients": "x"}]'),
}
PATHS = [
    "/", "/topics/events", "/api/topics", "/api/topics/events", "/api/nodes", "/api/counter",
    "/metrics", "/api/live/topics", "/api/live/topics/events", "/api/live/nodes",
    "/api/live/producers", "/api/live/lookup",
]


def strict(answer):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(answer.text, parse_constant=refuse)


@pytest.fixture
def sound():
    with Nsqd() as nsqd:
        nsqd.publish_many("events", [b"x"] * 4)
        yield nsqd


@contextmanager
def answering(body):
    with recording() as nsqd:
        info = {"version": "1.3.0", "broadcast_address": "127.0.0.1", "hostname": "h",
                "http_port": int(nsqd.address.split(":")[1]), "tcp_port": 1}
        nsqd.reply = lambda request: (
            json.dumps(info).encode() if request.path == "/info" else body)
        yield nsqd.address


def test_an_unusable_answer_to_stats_affects_only_its_row(leak_guard, sound):
    with ExitStack() as stack:
        hostile = {stack.enter_context(answering(body)): name for name, body in UNUSABLE.items()}
        admin = stack.enter_context(running_admin(
            nsqd_http_addresses=[sound.http_address, *hostile]))
        for path in PATHS:
            answer = admin.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text}"
        nodes = {each["address"]: each for each in strict(admin.get("/api/live/nodes"))["list"]}
        assert nodes[sound.http_address]["is_up"]
        for address, name in hostile.items():
            assert not nodes[address]["is_up"], name
            reason = nodes[address]["reason"]
            assert reason.startswith("unusable answer: "), (name, reason)
            assert ("HTTP port" in reason) == (name == "text"), (name, reason)
        topics = strict(admin.get("/api/live/topics"))
        [row] = topics["rows"]
        assert row[:2] == ["events", 4]
        assert {problem["address"] for problem in topics["problems"]} == set(hostile)


def test_an_odd_field_counts_as_nothing(leak_guard, sound):
    with ExitStack() as stack:
        odd = [stack.enter_context(answering(body)) for body in ODD.values()]
        admin = stack.enter_context(running_admin(nsqd_http_addresses=[sound.http_address, *odd]))
        for path in PATHS:
            answer = admin.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text}"
            if "/api/" in path:
                strict(answer)
        parts = strict(admin.get("/api/topics/events"))["nodes"]
        assert {each["node"]: each["depth"] for each in parts}[sound.http_address] == 4
        assert len(parts) == 1 + len(odd) and min(each["depth"] for each in parts) == 0
