"""The set-ups to copy of the page on TLS, compression and authentication: servers and clients."""

from __future__ import annotations

import getpass
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from nsqclient import Config, Consumer, Producer, PublishError
from nsqclient.spark.options import read_options, write_options
from tests.support.certificates import Certificates
from tests.support.docs.pages import commands_of, named, text_of
from tests.support.docs.terminal import Terminal
from tests.support.servers.auth_server import AuthServer

PASSWORD = "only for this test"


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("etc")
    made = Certificates(folder)
    for name, path in {
        "nsqd.pem": made.server, "nsqd-key.pem": made.server_key, "worker.pem": made.client,
        "worker-key.pem": made.client_key,
    }.items():
        shutil.copy(path, folder / name)
    return folder


@pytest.fixture
def terminal(empty_terminal: Terminal, etc: Path) -> Terminal:
    empty_terminal.replace.update({
        "/etc/nsq": str(etc), "--tls-cert=...": f"--tls-cert={etc}/nsqd.pem",
        "--tls-key=...": f"--tls-key={etc}/nsqd-key.pem",
    })
    return empty_terminal


def run(terminal: Terminal, program: str, **names: Any) -> dict[str, Any]:
    scope = dict(names)
    exec(compile(terminal.here(program), "the page", "exec"), scope)
    return scope


def publish(terminal: Terminal, config: Config, topic: str = "orders") -> None:
    with Producer([terminal.replace["127.0.0.1:4150"]], config=config) as producer:
        producer.publish(topic, b"x", timeout=10)


def test_the_tls_producer_of_the_page_publishes(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the page publishes, also with snappy and a secret; a plain one is refused."""
    [server] = commands_of(named("TLS server"))
    terminal.serve(server)
    terminal.replace["nsqd.example.com:4150"] = terminal.replace["127.0.0.1:4150"]
    run(terminal, text_of(named("TLS producer")))
    monkeypatch.setenv("NSQ_SECRET", "a secret")
    publish(terminal, run(terminal, text_of(named("TLS first")))["config"])
    with pytest.raises(PublishError, match="TLS"):
        publish(terminal, Config())


def test_the_client_certificates_of_the_page_are_accepted(
    terminal: Terminal, etc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [server] = commands_of(named("mutual TLS server"))
    terminal.serve(server)
    publish(terminal, run(terminal, text_of(named("mutual TLS client")))["config"])
    key = serialization.load_pem_private_key((etc / "worker-key.pem").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()))
    (etc / "locked-key.pem").write_bytes(locked)
    terminal.replace["/etc/nsq/worker-key.pem"] = str(etc / "locked-key.pem")
    monkeypatch.setattr(getpass, "getpass", lambda: PASSWORD)
    publish(terminal, run(terminal, text_of(named("TLS context")))["config"])
    with pytest.raises(PublishError):
        publish(terminal, Config(tls_v1=True, tls_root_ca_file=str(etc / "ca.pem")))


def test_the_auth_server_of_the_page_permits_orders(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.loads(text_of(named("answer of an auth server")))
    monkeypatch.setenv("NSQ_SECRET", "a secret")
    with AuthServer(lambda query: answer if query["secret"] == "a secret" else 403) as auth:
        terminal.replace["auth.example.com:4181"] = auth.address
        [server] = commands_of(named("auth server"))
        terminal.serve(server)
        config = run(terminal, text_of(named("auth client")))["config"]
        publish(terminal, config)
        with pytest.raises(PublishError, match="E_UNAUTHORIZED"):
            publish(terminal, config, "other")
        consumer = Consumer("orders", "c", nsqd_tcp_addresses=[terminal.replace["127.0.0.1:4150"]],
                            config=config)
        with consumer:
            assert next(consumer.messages(timeout=20)).body == b"x"
            question, shown = text_of(named("negotiated")).splitlines()
            assert repr(eval(question.removeprefix(">>> "))) == shown


class Options:
    """Stands for Spark's readers and writers: remembers the options that it was given."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def __getattr__(self, name: str) -> Options:
        return self

    def __call__(self, *words: str, **options: str) -> Options:
        self.given |= options
        return self


def test_the_tls_options_of_spark_open_tls_on_both_sides(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSQ_SECRET", "a secret")
    [server] = commands_of(named("mutual TLS server"))
    terminal.serve(server)
    terminal.replace["client.pem"], terminal.replace["client-key.pem"] = (
        "worker.pem", "worker-key.pem")
    scope = run(terminal, text_of(named("Spark over TLS")), spark=Options(), df=Options(),
                os=os)
    nsqd = {"nsqd": terminal.replace["127.0.0.1:4150"]}
    read = read_options({**scope["events"].given, **nsqd, "storage": "/nowhere"}, "stream")
    written = write_options({**scope["sink"].given, **nsqd})
    for found in (read, written):
        publish(terminal, found.config, found.topic)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_the_openssl_trial_of_the_page_works(empty_terminal: Terminal) -> None:
    terminal = empty_terminal
    make, server, tail = commands_of(named("TLS trial"))
    terminal.run(make)
    terminal.serve(server)
    tailing = terminal.start(tail)
    config = Config(tls_v1=True, tls_root_ca_file=str(terminal.folder / "cert.pem"))
    publish(terminal, config)
    tailing.wait_for("x\n")
    assert tailing.interrupt() == 0
