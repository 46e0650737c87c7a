"""nsqlookupds: lists of addresses, asking one of them, and the poller that asks them all."""

import json
import logging
import re
import socket
from collections import deque

import pytest
import requests

from nsqclient.config import Config
from nsqclient.discovery import Poller, check_addresses, config_for, lookup_topic, lookup_url
from nsqclient.errors import ConfigError, DiscoveryError
from nsqclient.runtime.lock import Lock
from tests.support.faults.hostile import NASTY
from tests.support.servers.http_recorder import recording


def _producer(host="nsqd", port=4150, **more):
    return {"broadcast_address": host, "tcp_port": port, "http_port": 4151, **more}


def _answer(*producers):
    return json.dumps({"channels": [], "producers": list(producers)}).encode()


@pytest.fixture
def lookupd():
    with recording() as server:
        server.body = _answer()
        yield server


def _fails(lookupd, topic="t", **options):
    address = lookupd if isinstance(lookupd, str) else lookupd.address
    with pytest.raises(DiscoveryError) as caught:
        lookup_topic(address, topic, Config(**options))
    assert caught.value.address == address
    return caught.value.reason


# -- addresses


@pytest.mark.parametrize("address, url", [
    ("lookupd:4161", "http://lookupd:4161/lookup"),
    ("[::1]:4161", "http://[::1]:4161/lookup"),
    ("http://lookupd:4161/", "http://lookupd:4161/lookup"),
    ("https://lookupd", "https://lookupd/lookup"),
    ("http://lookupd:4161/nsq/lookup", "http://lookupd:4161/nsq/lookup"),
    ("http://lookupd:4161/lookup/", "http://lookupd:4161/lookup"),
    ("http://lookupd:4161/?a=b", "http://lookupd:4161/lookup?a=b"),
    ("http://lookupd:4161/#x", "http://lookupd:4161/lookup"),
])
def test_an_address_is_host_and_port_or_a_url(address, url):
    assert lookup_url(address) == url


# -- answers


def test_producers_are_returned_as_host_and_port(lookupd):
    lookupd.body = _answer(_producer("a", 1), _producer("fe80::1", 65535))
    assert lookup_topic(lookupd.address, "t", Config()).nsqds == ("a:1", "[fe80::1]:65535")
    lookupd.body = _answer()
    assert lookup_topic(lookupd.address, "t", Config()).nsqds == ()


@pytest.mark.parametrize("bad", [
    None, {}, {"tcp_port": 4150}, _producer(""), _producer(5), _producer(port="4150"),
    _producer(port=0), _producer(port=65536), _producer(port=True), _producer(port=4150.0),
    _producer(NASTY), _producer("h/admin?x="), _producer("user@h"), _producer("a b"),
    _producer(http_port=65536),
])
def test_a_producer_that_cannot_be_dialed_is_left_out(lookupd, caplog, bad):
    lookupd.body = _answer(bad, _producer())
    with caplog.at_level(logging.WARNING, "nsqclient.discovery"):
        assert lookup_topic(lookupd.address, "t", Config()).nsqds == ("nsqd:4150",)
    assert re.search("unusable producer|is not a host name", caplog.text)


def test_an_unknown_topic_is_not_an_error(lookupd, caplog):
    lookupd.status, lookupd.body = 404, b'{"message":"TOPIC_NOT_FOUND"}'
    with caplog.at_level(logging.INFO):
        assert lookup_topic(lookupd.address, "t", Config()).nsqds == ()
    assert caplog.records == []


@pytest.mark.parametrize("status, body, why", [
    (404, '{"message":"NOT_FOUND"}', "HTTP 404.*NOT_FOUND"),
    (500, '{"message":"INTERNAL_ERROR"}', "HTTP 500.*INTERNAL_ERROR"),
    (200, "", "no JSON"), (200, b"\xff\xfe\x00", "no JSON"),
    (200, "[" * 100_000, "too many levels"),
    (200, "null", "no list of producers"), (200, "[]", "no list of producers"),
    (200, '{"producers": null}', "no list of producers"),
    (200, '{"data": {}}', "no list of producers"),
    (200, '{"x": "' + "y" * 10_000 + '"}', "no list of producers"),
], ids=lambda value: str(value)[:30])
def test_a_bad_answer_is_a_discovery_error(lookupd, status, body, why):
    lookupd.status, lookupd.body = status, body if isinstance(body, bytes) else body.encode()
    reason = _fails(lookupd)
    assert re.search(why, reason)
    assert len(reason) < 400


# -- requests


def test_a_request_has_the_answers_version_and_the_user_agent(lookupd):
    lookup_topic(lookupd.address, "a#ephemeral", Config(user_agent="mine/1.0"))
    lookup_topic(f"http://{lookupd.address}/nsq/lookup?a=b", "t", Config())
    [(_, path, headers, _), other] = lookupd.requests
    assert (path, other.path) == ("/lookup?topic=a%23ephemeral", "/nsq/lookup?a=b&topic=t")
    assert headers["Accept"] == "application/vnd.nsq; version=1.0"
    assert headers["User-Agent"] == "mine/1.0"
    assert "Authorization" not in headers


@pytest.mark.parametrize("options, sent", [
    ({}, None),
    ({"auth_secret": "s3cret"}, "Bearer s3cret"),
    ({"auth_secret": "s3cret", "skip_lookupd_authorization": False}, None),
    ({"auth_secret": "schl\u00fcssel\u20ac"}, "Bearer schl\u00fcssel\u20ac"),
])
def test_the_secret_is_sent_as_a_bearer_token(lookupd, options, sent):
    lookup_topic(lookupd.address, "t", Config(**options))
    header = lookupd.requests[0].headers.get("Authorization")
    assert header == (sent and sent.encode().decode("latin-1"))


@pytest.mark.parametrize("address, is_sent", [
    ("lookup:4161", True), ("http://LOOKUP:4171", True), ("https://lookup:4161", False),
    ("safe.example:4161", True), ("http://safe.example:4161", False),
    ("other:4161", False), ("lookup.evil.example:4161", False), ("evil.example:4161", False),
    ("second:4161", True), ("a.trusted.example:1", True), ("untrusted.example:1", False),
])
def test_the_secret_goes_to_configured_hosts_alone(address, is_sent):
    config = Config(auth_secret="s", lookupd_authorized_hosts="Second, .trusted.example")
    configured = ["http://user:pw@lookup:4161", "https://safe.example"]
    if address == "safe.example:4161":
        address = "https://safe.example:4161"
    assert config_for(address, configured, config).skip_lookupd_authorization is is_sent


def test_proxies_and_netrc_are_ignored(lookupd, monkeypatch, tmp_path):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login them password theirs\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    lookupd.body = _answer(_producer())
    assert lookup_topic(lookupd.address, "t", Config(auth_secret="ours")).nsqds == ("nsqd:4150",)
    assert lookupd.requests[0].headers["Authorization"] == "Bearer ours"


# -- when nobody answers


def test_an_unknown_host_is_a_discovery_error(monkeypatch):
    def no_such_host(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    assert "host unknown" in _fails("lookupd.invalid:4161")


def test_a_server_that_does_not_accept_ends_at_the_dial_timeout(monkeypatch):
    def time_out(*args, **kwargs):
        raise requests.exceptions.ConnectTimeout("on purpose")

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", time_out)
    assert "no connection within 0.5 s" in _fails("lookupd:4161", dial_timeout=0.5)


NSQD, LOOKUPD = "nsqd:4150", "lookupd:4161"


@pytest.mark.parametrize("nsqds, lookupds, checked", [
    ([NSQD], [], ([NSQD], [])),
    ([], [LOOKUPD], ([], [LOOKUPD])),
    ((NSQD,), {LOOKUPD}, ([NSQD], [LOOKUPD])),
    (iter([NSQD]), iter([LOOKUPD]), ([NSQD], [LOOKUPD])),
    (["b:1", "a:1", "b:1"], ["c:1", "http://c:1", "c:1"], (["b:1", "a:1"], ["c:1", "http://c:1"])),
    (["[::1]:4150"], ["http://[::1]:4161", "https://lookupd"],
     (["[::1]:4150"], ["http://[::1]:4161", "https://lookupd"])),
])
def test_a_list_of_addresses_keeps_its_order_without_duplicates(nsqds, lookupds, checked):
    assert check_addresses(nsqds, lookupds) == checked


@pytest.mark.parametrize("nsqds, lookupds, why", [
    ([], [], "give nsqd_tcp_addresses or lookupd_http_addresses"),
    (NSQD, [], r"nsqd_tcp_addresses must be a list of addresses: write \['nsqd:4150'\]"),
    ([], LOOKUPD, "lookupd_http_addresses must be a list"),
    (b"nsqd:4150", [], "nsqd_tcp_addresses must be a list"),
    ([NSQD], None, "lookupd_http_addresses must be a list"),
    (["nsqd"], [], "nsqd_tcp_address 'nsqd' has no port.*as in 'nsqd:4150'"),
    ([NSQD, "http://nsqd:4151"], [], "is a URL"),
    ([["nsqd", 4150]], [], "must be a string"),
    ([], ["lookupd"], "lookupd_http_address 'lookupd' has no port.*as in 'nsqlookupd:4161'"),
    ([], ["ftp://lookupd:4161"], "lookupd_http_address"),
    ("a:4150,b:4150", [], r"nsqd_tcp_addresses must be a list.*write \['a:4150', 'b:4150'\]"),
    (["a:4150,b:4150"], [], r"is a list with commas: give each.*\['a:4150', 'b:4150'\]"),
    ([], ["a:4161, b:4161"], r"is a list with commas: give each.*\['a:4161', 'b:4161'\]"),
    (["a:4150,u:p@b:4150"], [], r"\['a:\*\*\*@b:4150'\]"),
    ([], ["http://u:p,w@b:4161"], r"\['http://u:\*\*\*@b:4161'\]"),
    ([], ["http://u:12/w@b:4161"], r"'http://u:\*\*\*@b:4161'.*write / \? # @ and blanks as %XX"),
    ([], ["http://u:12?w@b:4161"], r"'http://u:\*\*\*@b:4161'.*as %XX"),
    ([], ["http://u:p\tw@b:4161"], r"'http://u:\*\*\*@b:4161'.*as %XX"),
])
def test_an_invalid_list_of_addresses_is_refused(nsqds, lookupds, why):
    with pytest.raises(ConfigError, match=why):
        check_addresses(nsqds, lookupds)


class World:
    """The owner of a poller; its background is a queue that the test works off."""

    def __init__(self):
        self.tasks = deque()
        self.answers = {}
        self.merged, self.reported = [], []
        self.further = []
        self.lock = Lock()
        self.poller = Poller(
            self.answer, lambda lookupd, task: self.tasks.append(task), self.lock,
            self.merge, self.report)

    def answer(self, lookupd):
        answer = self.answers.get(lookupd, lookupd.upper())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def merge(self, lookupd, answer, error):
        self.merged.append((lookupd, answer))
        further, self.further = self.further, []
        return further

    def report(self, lookupd, answer, error):
        self.reported.append((lookupd, answer, error))

    def ask(self, *lookupds, again=False):
        with self.lock:
            self.poller.ask(lookupds, again)

    def run_all(self):
        while self.tasks:
            self.tasks.popleft()()


@pytest.fixture
def world():
    return World()


def test_a_nsqlookupd_has_one_request_at_a_time(world):
    world.ask("a")
    world.ask("a", "b")
    assert len(world.tasks) == 2 and world.poller.is_asking
    world.run_all()
    assert world.merged == [("a", "A"), ("b", "B")] and not world.poller.is_asking
    assert (world.poller.requests, world.poller.answered) == (2, 2)


def test_a_newer_question_is_asked_when_the_old_one_is_answered(world):
    """The answer to the old question may be outdated."""
    world.ask("a")
    world.ask("a", again=True)
    assert len(world.tasks) == 1
    world.run_all()
    assert len(world.merged) == 2


@pytest.mark.parametrize("error", [DiscoveryError("a", "refused"), RuntimeError("a bug")])
def test_a_failure_is_reported_and_not_asked_again_at_once(world, error):
    """Nobody waits for ever, whatever it was."""
    world.answers["a"] = error
    world.ask("a")
    world.ask("a", again=True)
    world.run_all()
    assert world.merged == [("a", None)] and not world.poller.is_asking
    (_, answer, reported), = world.reported
    assert answer is None and isinstance(reported, DiscoveryError)
    assert world.poller.answered == 0


def test_nsqlookupds_that_an_answer_names_are_asked_too(world):
    world.further = ["b"]
    world.ask("a")
    world.run_all()
    assert world.merged == [("a", "A"), ("b", "B")]


def test_a_request_is_late_after_some_time(world):
    world.ask("a", "b")
    assert world.poller.late(60.0) == set() and not world.poller.all_late(60.0)
    assert world.poller.late(-1.0) == {"a", "b"} and world.poller.all_late(-1.0)
    world.run_all()
    assert world.poller.all_late(60.0)  # nothing is under way
