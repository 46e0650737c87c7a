"""``nsqclient nsqd`` and ``nsqclient nsqlookupd`` as processes, as a user starts them."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from nsqclient.cli import main
from nsqclient.cli import tool_flags
from nsqclient.cli.flags import CommandLineError
from nsqclient.cli.nsqd import build_cluster, build_command, parse_topic
from tests.support.certificates import Certificates
from tests.support.waiting import wait_until

ANY = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]


class Daemon:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        wait_until(lambda: process.poll() is not None or self._address("HTTP"), timeout=20)
        self.tcp, self.http = self._address("TCP"), self._address("HTTP")
        assert self.http, log.read_text()

    def wait_for_address(self, name: str) -> str:
        wait_until(lambda: self._address(name))
        return self._address(name)

    def _address(self, name: str) -> str:
        found = re.search(rf" {name}: listening on (\S+)", self._log.read_text())
        return found[1] if found else ""

    def end(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(20)


@contextmanager
def running(folder: Path, name: str, *words: str) -> Iterator[Daemon]:
    log = folder / f"{name}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "nsqclient", name, *ANY, *words], stderr=stderr
        )
    try:
        yield Daemon(process, log)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path, name, signum):
    with running(tmp_path, name) as daemon:
        assert requests.get(f"http://{daemon.http}/ping", timeout=20).text == "OK"
        assert daemon.end(signum) == 0


def test_flags_and_options_of_a_config_file_reach_nsqd(tmp_path):
    file = tmp_path / "nsqd.cfg"
    file.write_text('broadcast_address = "nsq.example"\nmax_msg_size = 500\nid = 7\n')
    with running(tmp_path, "nsqlookupd") as lookupd, running(
        tmp_path, "nsqd", f"--lookupd-tcp-address={lookupd.tcp}", f"--config={file}",
        "--max-msg-size=600",
    ) as nsqd:
        info = requests.get(f"http://{nsqd.http}/info", timeout=20).json()
        assert info["broadcast_address"] == "nsq.example"
        url = f"http://{nsqd.http}/pub?topic=t"
        assert [requests.post(url, b"x" * size, timeout=20).ok for size in (600, 601)] == [
            True, False]
        nodes = f"http://{lookupd.http}/nodes"
        wait_until(lambda: requests.get(nodes, timeout=20).json()["producers"])


@pytest.mark.parametrize("name, flag, more", [
    ("nsqd", "tcp-address", "--http-address=127.0.0.1:0"),
    ("nsqlookupd", "tcp-address", "--http-address=127.0.0.1:0"),
    ("nsqadmin", "http-address", "--nsqd-http-address=127.0.0.1:4151"),
])
def test_a_port_in_use_is_one_clear_line(name, flag, more, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status = main([name, f"--{flag}=127.0.0.1:{port}", more])
    err = capsys.readouterr().err
    assert status == 1 and len(err.splitlines()) == 1
    assert "127.0.0.1" in err and port in err


@pytest.mark.parametrize("text", ["h", "h:", "h:x", "h:65536", "h:-1", "h:" + "9" * 5000],
                         ids=range(6))
def test_an_invalid_listen_address_is_rejected(text):
    with pytest.raises(CommandLineError, match="--tcp-address .* is not an address"):
        tool_flags.parse_listen_address(text, "tcp-address")


def test_https_is_served_on_its_own_address(tmp_path):
    made = Certificates(tmp_path)
    pair = [f"--tls-cert={made.server}", f"--tls-key={made.server_key}"]
    with running(tmp_path, "nsqd", *pair, "--https-address=127.0.0.1:0") as daemon:
        https = daemon.wait_for_address("HTTPS")
        assert requests.get(f"https://{https}/ping", verify=made.ca, timeout=20).text == "OK"
    with running(tmp_path, "nsqd", *pair, "--https-address=") as daemon:
        assert requests.get(f"http://{daemon.http}/ping", timeout=20).ok
        assert "HTTPS: listening" not in (tmp_path / "nsqd.log").read_text()


PARTITIONED = ["--partitioned", *ANY, "--partitioned-lookupd-http-address=127.0.0.1:0"]


def test_a_topic_flag_has_a_name_partitions_and_attributes():
    assert parse_topic("orders:4") == {
        "topic": "orders", "partitions": 4, "ordered": False, "extended": False}
    assert parse_topic("o:1:extended:ordered") == {
        "topic": "o", "partitions": 1, "ordered": True, "extended": True}


@pytest.mark.parametrize("text", [
    "orders", "o:", "o:x", "o:0", "o:256", "o!:1", "o:1:odd", ":1",
    pytest.param("o:" + "9" * 5000, id="digits"),
])
def test_an_invalid_topic_flag_is_rejected(text):
    with pytest.raises(CommandLineError, match="NAME:PARTITIONS"):
        parse_topic(text)


def test_the_cluster_starts_with_its_topics():
    parsed = build_command().parse(
        [*PARTITIONED, "--partitioned-topic=o:4:ordered", "--msg-timeout=5s", "--log-level=warn"])
    with build_cluster(parsed) as cluster:
        assert (len(cluster.nsqds), len(cluster.nsqlookupds)) == (3, 2)
        assert [cluster.leader_of("o", partition) for partition in range(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize("flag", [
    "--partitioned-topic=x", "--partitioned-lookupd-http-address=nowhere",
    "--data-path=/somewhere", "--tls-cert=/a.pem", "--auth-http-address=h:1",
    "--broadcast-address=h", "--max-msg-size=5", "--https-address=127.0.0.1:0",
])
def test_invalid_flags_are_errors_with_a_reason(flag, capsys):
    assert main(["nsqd", *PARTITIONED, flag]) != 0
    assert flag.split("=")[0].lstrip("-") in capsys.readouterr().err
