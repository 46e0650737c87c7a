"""An nsqlookupd that means harm costs a typed error, a bounded time and bounded memory."""

import contextlib
import json
import logging
import threading
import time

import pytest

from nsqclient import Config, Consumer, DiscoveryError
from nsqclient.cli import main
from nsqclient.discovery import lookup_nodes
from nsqclient.partitioned.discovery import lookup
from tests.faults.dialogues import Seen, make_channel
from tests.support.memory import MIB, run_bounded
from tests.support.servers.scripted import Peer, ScriptedServer
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(60),
]

CONFIG = Config(lookupd_poll_timeout=1, auth_secret="hush")


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def answer(body: bytes) -> bytes:
    return head(f"Content-Length: {len(body)}") + body


def listing(**fields: object) -> bytes:
    """An answer to a lookup that names one nsqd."""
    producer = {
        "remote_address": "127.0.0.1:1", "hostname": "h", "broadcast_address": "127.0.0.1",
        "tcp_port": 4150, "http_port": 4151, "version": "1.3.0",
    }
    return answer(json.dumps({"channels": [], "producers": [{**producer, **fields}]}).encode())


def read_request(peer: Peer) -> list[bytes]:
    lines = []
    while line := peer.line().strip():
        lines.append(line)
    return lines


def answering(data: bytes, then=lambda peer: None):
    def script(peer: Peer) -> None:
        with contextlib.suppress(EOFError, OSError):
            read_request(peer)
            peer.send(data)
            then(peer)

    return script


def ask(data: bytes, *, then=lambda peer: None, call=lookup):
    """Ask a server that answers so; return the addresses, or raise the error."""
    with ScriptedServer(answering(data, then)) as server:
        if call is lookup:
            return lookup(server.address, "t", CONFIG)
        return call(server.address, CONFIG)


def endlessly(block: bytes):
    def pour(peer: Peer) -> None:
        for _ in range(300 * MIB // len(block)):
            peer.send(block)
    return pour


BODY = b'{"producers":[],"x":"'
HARMFUL = {
    "ten megabytes of JSON": (head(f"Content-Length: {10 * MIB}") + BODY, endlessly(b"y" * 65536)),
    "no end": (head() + BODY, endlessly(b"y" * 65536)),
    "chunks without end": (
        head("Transfer-Encoding: chunked"), endlessly(b"4000\r\n" + b"y" * 0x4000 + b"\r\n")
    ),
    "a redirect of megabytes": (
        head("Location: /elsewhere", "Content-Length: 314572800", status="302 Found"),
        endlessly(b"y" * 65536),
    ),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", endlessly(b"X-Y: " + b"z" * 1000 + b"\r\n")),
    "a size of four gigabytes": (head("Content-Length: 4294967296") + BODY, lambda peer: None),
    "deep nesting": (answer(b'{"producers":' + b"[" * 100_000), lambda peer: None),
    "a huge number": (answer(b'{"producers":[{"tcp_port":' + b"9" * 10_000 + b"}]}"),
                      lambda peer: None),
    "no HTTP": (b"\0" * 1000, lambda peer: None),
    "nothing": (b"", lambda peer: None),
}


@pytest.mark.parametrize("call", [lookup, lookup_nodes])
@pytest.mark.parametrize("harm", HARMFUL)
def test_a_harmful_answer_is_a_discovery_error(harm, call):
    """Soon, and without the memory that was meant to be taken."""
    data, then = HARMFUL[harm]

    def work():
        began = time.monotonic()
        with pytest.raises(DiscoveryError):
            ask(data, then=then, call=call)
        assert time.monotonic() - began < 10

    run_bounded(work, 100 * MIB)


IMPOSSIBLE = [
    {"broadcast_address": "user:secret@127.0.0.1"}, {"broadcast_address": "a\r\nb"},
    {"broadcast_address": "x" * 100_000}, {"broadcast_address": "\ud800"},
    {"tcp_port": 0}, {"tcp_port": 10**30}, {"tcp_port": "4150"}, {"broadcast_address": ["a"]},
]


@pytest.mark.parametrize("case", range(len(IMPOSSIBLE)))
def test_an_impossible_address_harms_nobody_else(server, case):
    make_channel(server, "t")
    server.post("/pub", b"x", topic="t")
    over = threading.Event()
    script = answering(listing(**IMPOSSIBLE[case]), lambda peer: over.set())
    with ScriptedServer(script) as hostile:
        seen = Seen()
        with Consumer("t", "c", seen, nsqd_tcp_addresses=[server.tcp_address],
                      lookupd_http_addresses=[hostile.address]):
            over.wait(10)
            wait_until(lambda: seen.bodies == {b"x"})


def test_thousands_of_listed_addresses_without_an_nsqd_are_survived():
    producers = [{"broadcast_address": f"127.0.{n >> 8}.{n & 255}", "tcp_port": 1}
                 for n in range(30_000)]
    data = answer(json.dumps({"channels": [], "producers": producers}).encode())

    def work():
        logging.disable()
        errors = []
        with ScriptedServer(answering(data)) as hostile:
            consumer = Consumer("t", "c", Seen(), on_error=errors.append,
                                lookupd_http_addresses=[hostile.address]).start()
            wait_until(lambda: len(errors) > 100)
            assert threading.active_count() < 40
            began = time.monotonic()
            assert consumer.stop(2)
            assert time.monotonic() - began < 15

    run_bounded(work, 100 * MIB)


def test_the_tools_show_no_password(capfd):
    """Their tables and logs are copied into tickets."""
    address = "http://user:pa55word@127.0.0.1:1"
    assert main(["doctor", "--topic=t", f"--lookupd-http-address={address}"]) == 1
    main([
        "nsq_stat", "--topic=t", "--channel=c", f"--lookupd-http-address={address}", "--count=1",
        "--interval=10ms",
    ])
    shown = "".join(capfd.readouterr())
    assert shown.count("http://user:***@127.0.0.1:1") >= 2 and "pa55" not in shown


def test_credentials_in_an_address_are_not_logged(caplog):
    errors = []
    with Consumer("t", "c", lambda message: None, on_error=errors.append,
                  lookupd_http_addresses=["http://user:pa55word@127.0.0.1:1"]):
        wait_until(lambda: errors)
    assert "pa55word" not in caplog.text + str(errors)
