"""nsq_stat beside the original, on a real nsqd.

Deliberate differences:

- A server that does not answer is reported on stderr and left out; one error ends the original.
- The nsqd that was named is asked; the original asks the address that nsqd broadcasts.
- Addresses may have a scheme; the original refuses it.
- Rates are per second of the time that passed, not of ``--interval``.
- On a terminal it draws a table.
"""

from __future__ import annotations

import pytest

from nsqclient.http import NsqdHTTP
from tests.support.docs.tool_runs import run_tool

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]
WATCH = ["--topic=t", "--channel=c", "--interval=1s"]


@pytest.fixture
def nsqd(real_nsqd):
    """A real nsqd with a channel that has waiting, deferred and disk-bound messages."""
    server = real_nsqd(mem_queue_size=10)
    with NsqdHTTP(server.http_address) as client:
        client.create_topic("t")
        client.create_channel("t", "c")
        client.mpub("t", [b"x"] * 40)
        client.pub("t", b"later", defer=3000)
        yield server


def test_rows_are_those_of_the_original(nsqd):
    """Heading and columns agree, byte for byte, where nothing moves."""
    words = [*WATCH, "--count=2", f"--nsqd-http-address={nsqd.http_address}"]
    ours, original = (run_tool(kind, "nsq_stat", *words) for kind in KINDS)
    assert (ours.returncode, original.returncode) == (0, 0)
    assert ours.stdout == original.stdout
    assert len(ours.stdout.splitlines()) == 4


@pytest.mark.parametrize("words", [
    [*WATCH, "--count=0", "--nsqd-http-address=a:1"],
    ["--topic=t", "--channel=c", "--interval=0s", "--nsqd-http-address=a:1"],
    ["--bogus"], ["--count=x"], ["--help"],
])
def test_bad_arguments_have_the_statuses_of_the_original(words):
    """Exit statuses agree, and nothing but help goes to stdout; the original has it in stderr."""
    ours, original = (run_tool(kind, "nsq_stat", *words) for kind in KINDS)
    assert ours.returncode == original.returncode
    assert (ours.stdout == b"") == (words != ["--help"])
    assert original.stdout == b""
