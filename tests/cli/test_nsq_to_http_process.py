"""nsq_to_http as a process, on the embedded nsqd: refused messages, TLS towards the URLs."""

import signal
import ssl

import pytest

from nsqclient import Consumer, DeadLetter
from nsqclient.devserver import Nsqd
from nsqclient.http import NsqdHTTP
from nsqclient.runtime.tls import server_context
from tests.support.certificates import Certificates
from tests.support.docs.tool_runs import tool
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until


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
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def first_letter(nsqd):
    with Consumer("refused", "ops", nsqd_tcp_addresses=[nsqd.tcp_address]) as consumer:
        return DeadLetter.parse(next(consumer.messages(timeout=20)).body)


def test_rejected_messages_go_to_the_dead_letter_topic(nsqd):
    """Those that the URL calls bad are kept elsewhere, those that it dislikes are dropped."""
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
