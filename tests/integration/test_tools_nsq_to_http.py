"""nsq_to_http beside the original, on a real nsqd, with a server that records the requests.

Deliberate differences are on the page docs/tools/nsq_to_http.rst.
"""


import pytest

from nsqclient.http import NsqdHTTP
from tests.support.docs.tool_runs import end, tool
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real

KINDS = ["ours", "original"]
BODIES = [b"one", b"two\nlines", b"a b&c=d/?%~", b"\x00\xff\r\n", "h\u00e9".encode(), b"x" * 5000]


@pytest.fixture
def nsqd(real_nsqd):
    server = real_nsqd(msg_timeout=60.0)
    with NsqdHTTP(server.http_address) as client:
        client.create_topic("t")
        client.create_channel("t", "c")
    return server


def publish(nsqd, bodies):
    with NsqdHTTP(nsqd.http_address) as client:
        client.mpub("t", bodies)


def words(nsqd, *more):
    return ["--topic=t", "--channel=c", f"--nsqd-tcp-address={nsqd.tcp_address}", *more]


def is_done(nsqd):
    found = nsqd.stats("t", "c")
    return found["depth"] == found["in_flight_count"] == found["deferred_count"] == 0


def seen(nsqd, kind, flags, bodies):
    publish(nsqd, bodies)
    with recording() as server:
        flags = [flag.replace("URL", server.url) for flag in flags]
        with tool(kind, "nsq_to_http", *words(nsqd, *flags)) as process:
            wait_until(lambda: len(server.requests) >= len(bodies) and is_done(nsqd), 20)
            assert end(process) == 0
        return sorted(_comparable(request) for request in server.requests)


def _comparable(request):
    headers = {name: value for name, value in request.headers.items()
               if name not in ("Host", "User-Agent", "Connection")}
    assert request.headers["User-Agent"].startswith("nsq_to_http v")
    return request.method, request.path, sorted(headers.items()), request.body


@pytest.mark.parametrize("flags, bodies", [
    (["--post=URL"], BODIES),
    (["--post=URL/a?b=c", "--content-type=text/plain", "--header=X-A: 1", "--header=X-A: 2"],
     BODIES),
    (["--post=URL/", "--header=Content-Type: a/b", "--mode=round-robin"], BODIES),
    (["--get=URL/hit?m=%s"], BODIES[:5]),
    (["--get=URL/%s", "--header=X-B: c d", "--mode=epsilon-greedy"], BODIES[:5]),
])
def test_requests_are_those_of_the_original(nsqd, flags, bodies):
    ours, original = (seen(nsqd, kind, flags, bodies) for kind in KINDS)
    assert ours == original
    assert len(ours) == len(bodies)
