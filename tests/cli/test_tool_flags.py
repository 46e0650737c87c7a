"""Shared by the utilities: flags, options, addresses, signals from the start on, consumers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqclient.cli import _is_ended_by_signals
from nsqclient.cli import tool_flags
from nsqclient.cli.consumers import Consumers
from nsqclient.cli.flags import CommandLineError, FlagError
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.version import __version__
from tests.support.processes import handles
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until


def read(*options, **defaults):
    pairs = [tool_flags.OPTIONS.parse(text) for text in options]
    return tool_flags.read_config({"consumer-opt": pairs}, "demo", "consumer-opt", **defaults)


def test_a_tool_never_gives_up_and_names_itself():
    config = read()
    assert config.max_attempts == 0
    assert config.user_agent == f"demo/{__version__} nsqclient/{__version__}"


def test_consumer_options_are_those_of_config():
    config = read("max-attempts,7", "snappy", "dial_timeout,2s", "auth_secret,a,b",
                  "dial_timeout,3s", "tls_root_ca_file,x", "tls_v1")
    assert (config.max_attempts, config.snappy, config.dial_timeout) == (7, True, 3.0)
    assert config.auth_secret == "a,b"


def test_options_win_over_the_defaults_of_a_tool():
    assert read(msg_timeout="5s").msg_timeout == 5
    assert read("msg_timeout,6s", msg_timeout="5s").msg_timeout == 6


@pytest.mark.parametrize("text", ["nope", "max_attempts,x", "tls_cert,x"])
def test_invalid_options_are_bad_flags(text):
    with pytest.raises(FlagError) as caught:
        read(text)
    assert caught.value.status == 2 and "-consumer-opt" in str(caught.value)


def test_a_tool_ends_when_no_nsqd_can_be_reached_at_the_start():
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    values = {"nsqd-tcp-address": addresses, "lookupd-http-address": []}
    with Signals(Second.EXIT) as signals:
        consumers = Consumers(values, read(), signals)
        consumers.add("t", "c", print)
        with pytest.raises(CommandLineError) as caught:
            consumers.run()
    assert all(address in str(caught.value) for address in addresses)


NSQD = "--nsqd-tcp-address=127.0.0.1:1"
WORKER = ["json:loads", "--topic=t", "--channel=c", NSQD]
COMMANDS = {
    "nsq_tail": ["--topic=t", NSQD],
    "nsq_to_file": ["--topic=t", "--channel=c", NSQD],
    "nsq_to_nsq": ["--topic=t", NSQD, "--destination-nsqd-tcp-address=127.0.0.1:1"],
    "nsq_to_http": ["--topic=t", NSQD, "--post=http://127.0.0.1:1/"],
    "publish": ["--topic=t", NSQD, "x"],
    "stat": ["--topic=t", "--channel=c", "--nsqd-http-address=127.0.0.1:1"],
    "nsqd": ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
    "worker": WORKER,
    "worker with --reload": [*WORKER, "--reload"],
    "worker with --processes": [*WORKER, "--processes=2"],
    "spark": ["ingest", "--topic=t", "--channel=c", NSQD, "--storage=file:///proc/no"],
}


@pytest.mark.parametrize("name, has_children", [
    *[(name, False) for name in COMMANDS], *[(name, True) for name in COMMANDS if "with" in name],
])
def test_a_signal_at_the_start_is_the_documented_end(name, has_children, tmp_path):
    """Or as soon as the first child is there, which may die of the signal that it is sent."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nsqclient", name.split()[0], *COMMANDS[name]], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: process.poll() is not None or (
        children.read_text() if has_children else handles(process.pid, signal.SIGTERM)))
    process.terminate()
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in printed, printed


@pytest.mark.parametrize(("words", "expected"), [
    (["nsq_tail", "--topic=t"], True), (["spark", "ingest"], True), (["worker", "jobs"], True),
    (["worker", "jobs", "--check"], False), (["spark", "compact"], False), (["spark"], False),
    (["doctor"], False), (["completion", "bash"], False), ([], False),
])
def test_a_command_that_has_a_result_is_ended_by_the_system(words, expected):
    """Status 0 would say that it has one."""
    assert _is_ended_by_signals(words) is expected
