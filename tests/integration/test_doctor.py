"""``nsqclient doctor``: faults are planted, and each is named with what to do."""

import json
import shlex
import threading

import pytest
import requests

from nsqclient import Config, Consumer, Producer
from nsqclient.cli import doctor, main
from nsqclient.cluster.doctor import diagnosis
from tests.support.faults.proxy import FaultProxy
from tests.support.servers.auth_server import NOTHING, AuthServer, granted
from tests.support.servers.http_api import registered
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


@pytest.fixture
def examine(capsys):
    def run(*words: str):
        capsys.readouterr()
        status = main(["doctor", "--topic=orders", "--watch=0", "--json", *words])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return status, [each for each in findings if each["severity"] != "ok"]

    return run


@pytest.fixture
def cluster(lookupd_factory, server_factory):
    def start(**options):
        lookupd = lookupd_factory()
        nsqd = server_factory(lookupd_tcp_addresses=[lookupd.tcp_address], **options)
        nsqd.create("orders", "mail")
        register(lookupd, nsqd)
        return lookupd, nsqd

    def register(lookupd, nsqd):
        def has_both():
            return registered(lookupd, "orders") and (
                lookupd.get("/channels", topic="orders").json()["channels"] == ["mail"])

        wait_until(has_both, 20, "nsqd did not register")

    return start


def flags_of(nsqd):
    return [f"--nsqd-tcp-address={nsqd.tcp_address}", f"--nsqd-http-address={nsqd.http_address}"]


def only(findings, check: str, where: str, text: str, hint: str):
    assert len(findings) == 1, findings
    (found,) = findings
    assert (found["severity"], found["check"], found["where"]) == ("error", check, where)
    assert text in found["text"] and hint in found["hint"] + found["command"], found


def test_a_healthy_cluster_has_no_findings(cluster, examine):
    lookupd, nsqd = cluster()
    before = nsqd.stats()["topics"]
    assert examine(f"--lookupd-http-address={lookupd.http_address}") == (0, [])
    assert examine(*flags_of(nsqd), "--channel=mail") == (0, [])
    assert nsqd.stats()["topics"] == before


def test_a_topic_without_a_channel_is_reported(cluster, examine):
    lookupd, nsqd = cluster()
    nsqd.post("/pub", b"x", topic="events")
    for topic in ("--topic=events", "--topic="):
        status, [found] = examine(*flags_of(nsqd), topic)
        assert (status, found["severity"]) == (0, "warning")
        assert found["where"] == f"events at {nsqd.http_address}"
        assert found["text"] == "it has 1 waiting message and no channel"


def test_topics_that_no_nsqlookupd_lists_are_reported(cluster, server, examine):
    lookupd, _ = cluster()
    server.post("/topic/create", topic="hidden")
    _, findings = examine(f"--lookupd-http-address={lookupd.http_address}",
                          f"--nsqd-http-address={server.http_address}", "--topic=")
    assert [found["text"] for found in findings] == ["no nsqlookupd lists the topics hidden"]


def test_a_misspelt_channel_or_topic_gets_the_names_that_there_are(cluster, examine):
    lookupd, nsqd = cluster()
    nsqd.post("/channel/create", topic="orders", channel="audit")
    (found,) = examine(f"--lookupd-http-address={lookupd.http_address}", "--channel=mial")[1]
    assert found["check"] == "channel" and found["severity"] == "warning"
    assert found["text"] == "no nsqd has it; there are the channels audit, mail"
    assert found["hint"].startswith("did you mean mail? Else a consumer creates it")
    (found,) = examine(f"--lookupd-http-address={lookupd.http_address}", "--topic=oders")[1]
    assert (found["severity"], found["check"], found["where"]) == ("error", "topic", "oders")
    assert found["text"] == "no nsqlookupd knows it; there is the topic orders"
    assert found["hint"].startswith("did you mean orders? ")
    assert found["command"] == (
        f"curl -X POST 'http://{nsqd.http_address}/topic/create?topic=oders'")


def test_a_command_of_a_finding_can_be_pasted(cluster, examine):
    lookupd, nsqd = cluster()
    nsqd.post("/channel/pause", topic="orders", channel="mail")
    (found,) = examine(f"--lookupd-http-address={lookupd.http_address}")[1]
    *curl, url = shlex.split(found["command"])
    assert curl == ["curl", "-X", "POST"]
    assert requests.post(url, timeout=10).status_code == 200
    assert examine(f"--lookupd-http-address={lookupd.http_address}") == (0, [])


@pytest.mark.parametrize("running", ["both", "nsqd", "none"])
def test_without_an_address_this_machine_is_asked(cluster, capsys, monkeypatch, running):
    lookupd, nsqd = cluster()
    gone = f"127.0.0.1:{free_port()}"
    local = lookupd.http_address if running == "both" else gone
    monkeypatch.setattr(doctor, "LOCAL_LOOKUPD", local)
    monkeypatch.setattr(doctor, "LOCAL_NSQD", gone if running == "none" else nsqd.tcp_address)
    # In tests the HTTP port is not beside the TCP port, where it is looked for.
    monkeypatch.setattr(diagnosis.Diagnosis, "_guess_http", lambda self, nsqds: (
        [] if running == "none" else [nsqd.http_address]))
    status = main(["doctor", "--watch=0", "--json"])
    printed = capsys.readouterr()
    findings = json.loads(printed.out)["findings"]
    assert status == (1 if running == "none" else 0), findings
    assert "no address was given: asking " in printed.err
    assert ("nsqlookupd at" in printed.err) == (running != "nsqd")
    assert any(each["text"] == "1 topic, 1 channel without a problem" for each in findings) == (
        running != "none")


def test_1_a_wrong_port_is_reported(examine):
    address = f"127.0.0.1:{free_port()}"
    status, findings = examine(f"--nsqd-tcp-address={address}")
    only(findings, "nsqd", address, "refused", "--tcp-address (port 4150 by default)")
    assert status == 1


def test_2_an_http_port_given_as_tcp_is_reported(server, examine):
    _, findings = examine(f"--nsqd-tcp-address={server.http_address}")
    only(findings, "nsqd", server.http_address, "HTTP", "not its HTTP port (4151)")


def test_3_an_nsqlookupd_that_is_down_is_reported(cluster, examine):
    lookupd, _ = cluster()
    down = f"127.0.0.1:{free_port()}"
    _, findings = examine(f"--lookupd-http-address={lookupd.http_address}",
                          f"--lookupd-http-address={down}")
    only(findings, "nsqlookupd", down, "refused", "see that nsqlookupd runs")


@pytest.mark.parametrize("name", ["nsqd.invalid", "127.0.0.2"])
def test_4_a_broadcast_address_that_cannot_be_reached_is_reported(cluster, examine, name):
    lookupd, nsqd = cluster(broadcast_address=name)
    address = f"{name}:{nsqd.tcp_address.rpartition(':')[2]}"
    _, findings = examine(f"--lookupd-http-address={lookupd.http_address}")
    broadcast = [each for each in findings if each["check"] == "broadcast"]
    only(broadcast, "broadcast", address, f"nsqlookupd {lookupd.http_address} lists it",
         "--broadcast-address")


def test_5_required_tls_is_reported(server_factory, examine, certificates):
    server = server_factory(tls_cert=certificates.server, tls_key=certificates.server_key,
                            tls_required="tcp-https")
    server.post("/topic/create", topic="orders")
    _, findings = examine(f"--nsqd-tcp-address={server.tcp_address}")
    only(findings, "nsqd", server.tcp_address, "TLS required", "set tls_v1")
    assert examine(*flags_of(server), "--consumer-opt=tls_v1",
                   f"--consumer-opt=tls_root_ca_file,{certificates.ca}") == (0, [])


def test_6_a_wrong_authority_is_reported(server_factory, examine, certificates):
    server = server_factory(tls_cert=certificates.server, tls_key=certificates.server_key)
    _, findings = examine(
        f"--nsqd-tcp-address={server.tcp_address}", "--consumer-opt=tls_v1",
        f"--consumer-opt=tls_root_ca_file,{certificates.other_ca}")
    only(findings, "nsqd", server.tcp_address, "verify failed", "set tls_root_ca_file")


def test_7_missing_authentication_is_reported(server_factory, examine):
    def rule(query):
        return granted(topic=".*") if query["secret"] == "s3cret" else NOTHING

    with AuthServer(rule) as auth:
        server = server_factory(auth_http_addresses=[auth.address])
        server.post("/topic/create", topic="orders")
        _, findings = examine(f"--nsqd-tcp-address={server.tcp_address}")
        only(findings, "nsqd", server.tcp_address, "requires authentication", "set auth_secret")
        assert examine(*flags_of(server), "--consumer-opt=auth_secret,s3cret") == (0, [])


def test_8_an_absent_topic_is_reported(cluster, examine):
    _, nsqd = cluster()
    _, findings = examine(f"--nsqd-http-address={nsqd.http_address}", "--topic=ordres")
    only(findings, "topic", "ordres", "", "check the spelling")


def test_9_a_growing_timeout_count_is_reported(cluster, examine):
    lookupd, nsqd = cluster(msg_timeout=1.0)
    over = threading.Event()
    config = Config(max_in_flight=2, heartbeat_interval=1, max_attempts=0)
    consumer = Consumer("orders", "mail", lambda message: over.wait(60), config=config,
                        nsqd_tcp_addresses=[nsqd.tcp_address])
    with Producer([nsqd.tcp_address]) as producer:
        producer.publish_many("orders", [b"x"] * 2)
    consumer.start()
    try:
        wait_until(lambda: nsqd.stats("orders", "mail")["in_flight_count"], 20)
        _, findings = examine(f"--lookupd-http-address={lookupd.http_address}", "--watch=30s")
    finally:
        over.set()
        consumer.stop(10)
    (found,) = [each for each in findings if each["check"] == "timeouts"]
    assert found["where"] == f"orders/mail at {nsqd.http_address}"
    assert "timed out in" in found["text"] and "raise it (option msg_timeout)" in found["hint"]


def test_an_nsqd_whose_topics_cannot_be_seen_is_a_warning(server, examine):
    """The nsqd answers, but no given server knows the topic. This is not reported as OK."""
    with FaultProxy(server.tcp_address) as proxy:  # beside its port nobody serves HTTP
        status, findings = examine(f"--nsqd-tcp-address={proxy.address}")
    [found] = findings
    assert (found["severity"], found["check"], status) == ("warning", "topic", 0)
    assert "--nsqd-http-address" in found["hint"]


def test_an_nsqd_that_does_not_register_is_reported(server, lookupd_factory, examine):
    lookupd = lookupd_factory()
    server.post("/topic/create", topic="orders")
    status, findings = examine(f"--lookupd-http-address={lookupd.http_address}",
                               f"--nsqd-http-address={server.http_address}")
    assert {each["check"] for each in findings} == {"nsqlookupd", "topic"} and status == 1
    assert all("--lookupd-tcp-address" in each["hint"] + each["command"] for each in findings)


def test_another_port_given_for_nsqlookupds_is_recognised(server, lookupd_factory, examine):
    lookupd = lookupd_factory()
    for address, words in ((server.http_address, "nsqd's is 4151"), (lookupd.tcp_address, "4161")):
        _, findings = examine(f"--lookupd-http-address={address}")
        (found,) = findings
        assert found["check"] == "nsqlookupd" and words in found["hint"], found
