"""nsq_to_http: choice of URLs, requests, timings, what happens to a message, --on-status, TLS."""

import contextlib
import random
import ssl
from collections import Counter

import pytest

from nsqclient import Consumer, DeadLetter, GiveUp, Requeue
from nsqclient.cli.flags import CommandLineError
from nsqclient.cli.nsq_to_http import (
    RequestFailed, Requester, Sender, parse_header, parse_rule,
)
from nsqclient.cli.load_balancing import (
    STRATEGIES, EpsilonGreedy, HostPool, RequestTimes, describe,
)
from nsqclient.devserver import Nsqd
from nsqclient.http import NsqdHTTP
from nsqclient.runtime.tls import server_context
from nsqclient.testing import make_message
from tests.support.certificates import Certificates
from tests.support.docs.tool_runs import end, tool
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until

URLS = ["a", "b", "c"]


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_every_strategy_orders_all_urls(strategy):
    choice = strategy(URLS, random.Random(1))
    for now in range(200):
        order = choice.order(now)
        assert sorted(order) == URLS
        choice.report(order[0], now % 3 != 0, 0.01, now)


def test_a_failed_host_pauses_longer_each_time():
    choice = HostPool(["a", "b"], random.Random(1))
    now = 0.0
    for rest in [30, 60, 120, 240, 480, 900, 900]:
        choice.report("a", False, 0, now)
        choice.report("a", False, 0, now)  # another request that failed with it
        assert {choice.order(now + rest - 1)[-1] for _ in range(4)} == {"a"}
        now += rest
        assert {choice.order(now)[0] for _ in range(4)} == {"a", "b"}
    choice.report("a", True, 0, now)
    choice.report("a", False, 0, now)
    assert {choice.order(now + 30)[0] for _ in range(4)} == {"a", "b"}


def test_when_all_hosts_fail_all_are_tried_again():
    choice = HostPool(["a", "b"], random.Random(1))
    for one in "ab":
        choice.report(one, False, 0, 0)
    assert {choice.order(1)[0] for _ in range(4)} == {"a", "b"}


def test_epsilon_greedy_prefers_the_fast_host_and_tries_the_others():
    choice = EpsilonGreedy(["slow", "fast", "dead"], random.Random(1))
    counts = Counter()
    for now in range(1000):
        one = choice.order(now)[0]
        counts[one] += 1
        choice.report(one, one != "dead", 0.1 if one == "slow" else 0.001, now)
    assert counts["fast"] > 900 and counts["slow"] > 0 and 0 < counts["dead"] < 20


def test_the_status_line_has_percentiles_and_the_mean():
    values = [n / 1000 for n in range(1, 101)]
    assert describe("x", values) == "[x]: finished 100 - 99th: 99ms - 95th: 95ms - avg: 50.5ms"


@pytest.fixture
def server(leak_guard):
    with recording() as recorder:
        yield recorder


def requester(is_get=False, **headers):
    return Requester(is_get=is_get, headers=headers, connections=2, timeouts=(2.0, 5.0))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 400, 404, 500, 503])
def test_a_status_outside_200_to_299_is_a_failure(server, status):
    server.status, server.headers = status, {"Location": "/elsewhere"}
    with pytest.raises(RequestFailed, match=str(status)):
        requester().send(server.url, b"x")
    assert len(server.requests) == 1


class Fake:
    """Sends nothing; URLs named "bad..." fail, and a number is the status of the answer."""

    def __init__(self):
        self.sent = []

    def send(self, url, body):
        self.sent.append(url)
        if url.startswith("bad"):
            raise RequestFailed("on purpose")
        if url.isdecimal() and url != "200":
            raise RequestFailed(f"HTTP {url}", int(url))


def send(urls, mode="round-robin", rules=(), sample=1.0, times=1, fake=None):
    fake, messages = fake or Fake(), [make_message(b"x") for _ in range(times)]
    sender = Sender(
        urls, mode, fake, RequestTimes(urls, 0), sample, [parse_rule(rule) for rule in rules])
    for message in messages:
        sender.handle(message)
    return fake.sent, sum(message.touched for message in messages)


@pytest.mark.parametrize("mode", STRATEGIES)
def test_one_bad_url_does_not_back_off_the_consumer(mode):
    tried, touched = send(["bad", "good"], mode, times=20)
    assert tried.count("good") == 20 and 1 <= touched <= 20


@pytest.mark.parametrize("mode, urls, backoff", [
    ("hostpool", ["bad1", "bad2"], True), ("round-robin", ["bad"], True),
    ("all", ["bad", "good"], False), ("all", ["bad1", "bad2"], True),
])
def test_a_message_that_did_not_arrive_is_requeued(mode, urls, backoff):
    with pytest.raises(Requeue) as caught:
        send(urls, mode)
    assert caught.value.backoff is backoff


@pytest.mark.parametrize("sample, least, most", [(0.0, 0, 0), (0.3, 220, 380), (1.0, 1000, 1000)])
def test_sample_sends_a_part_and_finishes_the_rest(sample, least, most):
    assert least <= len(send(["a"], sample=sample, times=1000)[0]) <= most


@pytest.mark.parametrize("text, first, last, outcome", [
    ("404=drop", 404, 404, "drop"),
    ("4xx=dead-letter", 400, 499, "dead-letter"),
    ("500-503=retry", 500, 503, "retry"),
])
def test_a_rule_has_statuses_and_an_action(text, first, last, outcome):
    assert parse_rule(text) == (first, last, outcome)


@pytest.mark.parametrize("text", [
    "", "404", "404=", "=drop", "404=fly", "200=drop", "2xx=drop", "600=drop", "4x=drop",
    "404=arrived", "450-420=drop", "404-=drop", "\u0664xx=drop",
])
def test_an_invalid_rule_is_rejected(text):
    with pytest.raises(ValueError, match="write STATUS=ACTION|empty range"):
        parse_rule(text)


@pytest.mark.parametrize("status, error", [
    ("429", Requeue), ("404", None), ("500", GiveUp), ("302", Requeue),
])
def test_the_first_rule_that_fits_counts(status, error):
    rules = ["429=retry", "4xx=drop", "400-599=dead-letter"]
    with pytest.raises(error) if error else contextlib.nullcontext():
        send([status], rules=rules)


@pytest.mark.parametrize("text, parsed", [
    ("A: b", ("A", "b")), ("A:b:c", ("A", "b:c")), (" A :  b ", ("A", "b")),
])
def test_a_header_is_split_at_its_first_colon(text, parsed):
    assert parse_header(text) == parsed


@pytest.mark.parametrize("text", ["", "A", "A:", ": b", "A: b\nC: d", "A B: c", "A: \u20ac"])
def test_a_bad_header_is_an_error_that_shows_the_format(text):
    with pytest.raises(CommandLineError, match="write it as|invalid in a header"):
        parse_header(text)


@pytest.fixture
def nsqd(leak_guard):
    with Nsqd() as server, NsqdHTTP(server.http_address) as client:
        client.create_topic("t")
        client.create_channel("t", "nsq_to_http")
        client.create_topic("refused")
        server.client = client
        yield server


def is_done(nsqd):
    found = nsqd.client.stats("t", "nsq_to_http").topic("t").channel("nsq_to_http")
    return found.depth == found.in_flight_count == found.deferred_count == 0


def run(nsqd, *words):
    words = ["--topic=t", f"--nsqd-tcp-address={nsqd.tcp_address}", *words]
    with tool("ours", "nsq_to_http", *words) as process:
        wait_until(lambda: is_done(nsqd), 20)
        assert end(process) == 0


def first_letter(nsqd):
    with Consumer("refused", "ops", nsqd_tcp_addresses=[nsqd.tcp_address]) as consumer:
        return DeadLetter.parse(next(consumer.messages(timeout=20)).body)


def test_rejected_messages_go_to_the_dead_letter_topic(nsqd):
    nsqd.client.mpub("t", [b"good", b"bad", b"ugly"])
    with recording() as server:
        statuses = {b"good": 200, b"bad": 400, b"ugly": 410}
        server.decide = lambda request: statuses[request.body]
        run(nsqd, f"--post={server.url}", "--on-status=410=drop", "--on-status=4xx=dead-letter",
            "--dead-letter-topic=refused")
        assert sorted(server.bodies()) == sorted(statuses)
    assert nsqd.client.stats("refused").topic("refused").depth == 1
    letter = first_letter(nsqd)
    assert (letter.body, letter.topic, letter.channel) == (b"bad", "t", "nsq_to_http")
    assert letter.reason.startswith(server.url.rstrip("/")) and "HTTP 400" in letter.reason


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_https_takes_a_root_ca_and_a_client_certificate(nsqd, certificates):
    nsqd.client.pub("t", b"x")
    context = server_context(cert=certificates.server, key=certificates.server_key,
                             ca_file=certificates.ca, verify_clients=True)
    with recording(context) as server:
        run(nsqd, f"--post={server.url}", f"--http-client-tls-root-ca-file={certificates.ca}",
            f"--http-client-tls-cert={certificates.client}",
            f"--http-client-tls-key={certificates.client_key}")
        assert server.bodies() == [b"x"]


@pytest.mark.parametrize("words, arrives", [([], False), (["insecure-skip-verify"], True)])
def test_https_is_verified_by_default(nsqd, certificates, words, arrives):
    nsqd.client.pub("t", b"x")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    with recording(context) as server:
        more = ["--consumer-opt=max_attempts,1", "--consumer-opt=default_requeue_delay,10ms",
                "--consumer-opt=max_backoff_duration,0"]
        run(nsqd, f"--post={server.url}", *more, *(f"--http-client-tls-{word}" for word in words))
        assert server.bodies() == ([b"x"] if arrives else [])
