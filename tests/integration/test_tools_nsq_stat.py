"""nsq_stat beside the original, on a real nsqd.

Deliberate differences are on the page docs/tools/nsq_stat.rst.
"""

import pytest

from nsqclient.http import NsqdHTTP
from tests.support.docs.tool_runs import run_tool

pytestmark = pytest.mark.real


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
    words = ["--topic=t", "--channel=c", "--interval=1s", "--count=2",
             f"--nsqd-http-address={nsqd.http_address}"]
    ours, original = (run_tool(kind, "nsq_stat", *words) for kind in ("ours", "original"))
    assert (ours.returncode, original.returncode) == (0, 0)
    assert ours.stdout == original.stdout
    assert len(ours.stdout.splitlines()) == 4
