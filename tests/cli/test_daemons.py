"""``nsqclient nsqd`` and ``nsqclient nsqlookupd`` as processes, as a user starts them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import requests

from nsqclient.cli import COMMANDS, main
from nsqclient.cli.daemon import parse_listen_address
from nsqclient.cli.flags import CommandLineError
from tests.support.certificates import Certificates
from tests.support.servers.raw_client import RawClient
from tests.support.waiting import wait_until

ANY = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]


class Daemon:
    """A running command and the addresses that it logged."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        wait_until(lambda: process.poll() is not None or self._address("HTTP"), timeout=20)
        self.tcp, self.http = self._address("TCP"), self._address("HTTP")
        assert self.http, log.read_text()

    def wait_for_address(self, name: str) -> str:
        """Wait until a port listens; return its address."""
        wait_until(lambda: self._address(name))
        return self._address(name)

    def _address(self, name: str) -> str:
        found = re.search(rf" {name}: listening on (\S+)", self._log.read_text())
        return found[1] if found else ""

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(signum)
        return self.process.wait(20)


@contextmanager
def running(
    folder: Path, name: str, *words: str, prefix: Sequence[str] = ()
) -> Iterator[Daemon]:
    """Run a command until the block ends; ``prefix`` is a command that runs it."""
    log = folder / f"{name}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "nsqclient", name, *ANY, *words], stderr=stderr
        )
    try:
        yield Daemon(process, log)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path, name, signum):
    """It answers, and SIGINT or SIGTERM ends it with status 0."""
    with running(tmp_path, name) as daemon:
        assert requests.get(f"http://{daemon.http}/ping", timeout=5).text == "OK"
        assert daemon.end(signum) == 0


def test_a_low_limit_of_descriptors_is_raised(tmp_path):
    """As far as the system lets it: a shell's limit would end at some clients."""
    shell = ["sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh"]
    with running(tmp_path, "nsqd", prefix=shell) as daemon, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(daemon.tcp)) for _ in range(80)]
        for client in clients:
            assert client.ask(b"PUB t\n\0\0\0\1x") == (0, b"OK")


def test_messages_survive_a_restart_with_a_data_path(tmp_path):
    """What was published is there again after a stop in order."""
    data = tmp_path / "data"
    data.mkdir()
    with running(tmp_path, "nsqd", f"--data-path={data}") as daemon:
        requests.post(f"http://{daemon.http}/pub?topic=t", data=b"x", timeout=5)
        assert daemon.end() == 0
    with running(tmp_path, "nsqd", f"--data-path={data}") as daemon:
        stats = requests.get(f"http://{daemon.http}/stats?format=json", timeout=5).json()
        assert stats["topics"][0]["depth"] == 1


def stored_sizes(nsqd, *sizes):
    """Return the sizes of the bodies that it stores."""
    url = f"http://{nsqd.http}/pub?topic=t"
    return [size for size in sizes if requests.post(url, b"x" * size, timeout=5).ok]


def test_nsqd_registers_and_its_flags_reach_it(tmp_path):
    """--lookupd-tcp-address and other flags have their effect."""
    with running(tmp_path, "nsqlookupd") as lookupd, running(
        tmp_path, "nsqd", f"--lookupd-tcp-address={lookupd.tcp}", "--max-msg-size=5"
    ) as nsqd:
        config = requests.get(f"http://{nsqd.http}/config/nsqlookupd_tcp_addresses", timeout=5)
        assert config.json() == [lookupd.tcp]
        assert stored_sizes(nsqd, 5, 6) == [5]
        nodes = f"http://{lookupd.http}/nodes"
        wait_until(lambda: requests.get(nodes, timeout=5).json()["producers"])


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_a_port_in_use_is_one_clear_line(name, capsys):
    """The status is 1, and the line names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        status = main([name, f"--tcp-address={address}", "--http-address=127.0.0.1:0"])
    err = capsys.readouterr().err
    assert status == 1 and address in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--bogus"], 2),
        (["--log-level=bad"], 2),
        (["--msg-timeout=5"], 2),
        (["--e2e-processing-latency-percentile=nan"], 1),
        (["--e2e-processing-latency-percentile=1", "--e2e-processing-latency-window-time=0"], 1),
        (["--tcp-address=4150"], 1),
        (["--tcp-address=127.0.0.1:65536"], 1),
        (["--config=/no/such/file"], 1),
        (["--version"], 0),
        (["--help"], 0),
    ],
)
def test_invalid_flags_of_nsqd_are_errors(words, status, capsys):
    """Bad input gives the Go tools' exit status and says what is wrong."""
    assert main(["nsqd", *words]) == status
    assert status == 0 or capsys.readouterr().err


def test_a_config_file_is_read(tmp_path):
    """Options of a TOML file hold where the command line says nothing."""
    config = tmp_path / "nsqd.cfg"
    config.write_text('broadcast_address = "nsq.example"\nmax_msg_size = 500\nid = 7\n')
    with running(tmp_path, "nsqd", f"--config={config}", "--max-msg-size=600") as daemon:
        info = requests.get(f"http://{daemon.http}/info", timeout=5).json()
        assert info["broadcast_address"] == "nsq.example"
        assert stored_sizes(daemon, 500, 600, 601) == [500, 600]


def test_commands_are_listed(capsys):
    """Without a command the usage is shown; an unknown one is named."""
    assert main(["--help"]) == 0
    assert "nsqlookupd" in capsys.readouterr().out
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err
    assert main(["nsqtail"]) == 2
    assert capsys.readouterr().err == (
        "nsqclient: unknown command 'nsqtail': did you mean nsq_tail?\nsee 'nsqclient --help'\n")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"spark"}))
def test_help_of_a_command_is_its_help(command, capsys):
    """``nsqclient help TOOL`` prints what ``nsqclient TOOL --help`` prints."""
    assert main(["help", command]) == 0
    shown = capsys.readouterr()
    assert main([command, "--help"]) == 0
    assert capsys.readouterr() == shown and shown.err == "" and command in shown.out


def test_help_of_an_unknown_command_is_a_usage_error(capsys):
    """With a suggestion, as without ``help``."""
    assert main(["help", "doctr"]) == 2
    assert "did you mean doctor?" in capsys.readouterr().err
    assert main(["help", "spark"]) == 0 and main(["help", "spark", "archive"]) == 0
    assert "--partition-by" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["h", "h:", "h:x", "h:65536", "h:-1", "h:" + "9" * 5000],
                         ids=range(6))
def test_an_invalid_listen_address_is_rejected(text):
    """The error names the flag."""
    with pytest.raises(CommandLineError, match="--tcp-address .* is not an address"):
        parse_listen_address(text, "tcp-address")


def test_https_is_served_on_its_own_address(tmp_path):
    """With a certificate, on the port of --https-address; none where that is empty."""
    made = Certificates(tmp_path)
    pair = [f"--tls-cert={made.server}", f"--tls-key={made.server_key}"]
    with running(tmp_path, "nsqd", *pair, "--https-address=127.0.0.1:0") as daemon:
        https = daemon.wait_for_address("HTTPS")
        assert requests.get(f"https://{https}/ping", verify=made.ca, timeout=5).text == "OK"
    with running(tmp_path, "nsqd", *pair, "--https-address=") as daemon:
        assert requests.get(f"http://{daemon.http}/ping", timeout=5).ok
        assert "HTTPS: listening" not in (tmp_path / "nsqd.log").read_text()
