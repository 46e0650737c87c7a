"""Servers put control characters into every text: no log line, table or page shows one."""

import base64
import logging
import traceback

import pytest

from nsqclient import Config, Consumer
from nsqclient.cli import main
from nsqclient.devserver import Nsqd
from tests.support.browser.admin import running_admin
from tests.support.faults.hostile import NASTY, HostileNsqd, HostileNsqlookupd, control_characters
from tests.support.waiting import wait_until

CONFIG = Config(auth_secret="hush", lookupd_poll_interval=0.2, lookupd_poll_timeout=5,
                max_reconnect_delay=0.05)


@pytest.fixture
def nsqd(leak_guard):
    with HostileNsqd("t", "c") as server:
        yield server


@pytest.fixture
def lookupd(nsqd):
    with HostileNsqlookupd("t", [nsqd]) as server:
        yield server


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, "nsqclient")
    yield caplog
    for record in caplog.get_records("call"):
        line = record.getMessage()
        assert "\n" not in line and control_characters(line) == [], record
        if record.exc_info and record.exc_info[1] is not None:
            assert control_characters("".join(traceback.format_exception(*record.exc_info))) == []


def test_a_consumer_logs_one_line_for_each_event(nsqd, lookupd, log):
    errors = []
    with Consumer("t", "c", lambda message: None, config=CONFIG, on_error=errors.append,
                  lookupd_http_addresses=[lookupd.http_address]):
        wait_until(lambda: "authenticated as x" in log.text and "E_INVALID" in log.text)
        wait_until(lambda: errors)
    assert r"forged\r\x1b[2J" in log.text and "connected to nsqd x" in log.text
    assert all(control_characters(str(error)) == [] for error in errors)


@pytest.mark.parametrize("words", [
    ["doctor", "--watch=0", "--lookupd-http-address={lookupd}", "--log-level=debug"],
    ["doctor", "--watch=0", "--lookupd-http-address={lookupd}", "--json"],
    ["doctor", "--watch=0", "--nsqd-tcp-address={tcp}", "--nsqd-http-address={nsqd}"],
    ["doctor", "--watch=0", "--lookupd-http-address={nsqd}"],
    ["nsq_stat", "--interval=20ms", "--count=2", "--channel=c", "--lookupd-http-address={lookupd}"],
    ["nsq_stat", "--interval=20ms", "--count=2", "--channel=c", "--nsqd-http-address={lookupd}"],
    ["nsq_stat", "--interval=20ms", "--count=2", "--channel=c", "--nsqd-http-address={nsqd}",
     "--json"],
], ids=lambda words: f"{words[0]}-{words[-2][-10:]}-{words[-1][-10:]}")
def test_the_tables_and_lines_of_tools_are_clean(nsqd, lookupd, log, capsys, words):
    addresses = {"lookupd": lookupd.http_address, "nsqd": nsqd.http_address,
                 "tcp": nsqd.tcp_address}
    main([*(word.format(**addresses) for word in words), "--topic=t"])
    printed = capsys.readouterr()
    assert printed.out + printed.err
    for line in (printed.out + printed.err).split("\n"):
        assert control_characters(line) == []
        assert not line.startswith("2026/11/22 00:00:00 INFO forged")


PATHS = [
    "/", "/nodes", "/lookup", "/topics/t", "/topics/t/c", "/producers", "/metrics", "/nothing%0A",
    "/nodes/%1B%5B2J", "/api/topics", "/api/topics/t", "/api/topics/t/c", "/api/nodes",
    "/api/nodes/%1B%5B2J", "/api/counter", "/api/topics?inactive=true", "/api/live/topics",
    "/api/live/topics/t", "/api/live/topics/t/c", "/api/live/nodes", "/api/live/lookup",
    "/api/live/producers", "/config/nsqlookupd_http_addresses",
]


def _texts(value):
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def test_the_pages_and_answers_of_nsqadmin_are_clean(nsqd, lookupd, log):
    with running_admin(lookupd_http_addresses=[lookupd.http_address]) as admin:
        name = f"127.0.0.1:{nsqd.http.port}"
        for path in [*PATHS, f"/api/nodes/{name}", f"/api/live/nodes/{name}"]:
            answer = admin.get(path, Accept="*/*")
            is_json = answer.headers["Content-Type"].startswith("application/json")
            texts = _texts(answer.json()) if is_json else [answer.text]
            assert [text for text in texts if control_characters(text)] == [], path
            if is_json:
                assert [text for text in texts if "\n" in text] == [], path
        user = base64.b64encode(f"eve\n{NASTY}:x".encode("utf-8", "replace")).decode()
        admin.post("/api/topics", {"topic": "made", "node": NASTY}, Authorization=f"Basic {user}")
        answer = admin.post("/api/topics", {"topic": "made"}, Authorization=f"Basic {user}")
        assert answer.status_code == 502  # it refuses everything
        page = admin.get("/", Authorization=f"Basic {user}").text
        assert "eve" in page and control_characters(page) == []


def test_the_audit_line_cannot_be_forged(log, leak_guard):
    user = base64.b64encode(b"eve\ndelete_topic topic=t user=root:x").decode()
    with Nsqd() as server, running_admin(nsqd_http_addresses=[server.http_address]) as admin:
        answer = admin.post("/api/topics", {"topic": "made"}, Authorization=f"Basic {user}")
        assert answer.status_code == 200
    [line] = [record.getMessage() for record in log.get_records("call")
              if record.getMessage().startswith("create_topic")]
    assert r"user=eve\ndelete_topic topic=t user=root" in line
