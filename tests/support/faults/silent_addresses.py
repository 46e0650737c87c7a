"""Thousands of addresses that do not answer, of one listener on loopback."""

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

from nsqclient.runtime import name_lookup
from tests.support.servers.http_recorder import Recorder, recording

#: The most zeros that can stand before a number of an IPv4 address: a name's part has 63 letters.
_MOST_ZEROS = 54


@contextlib.contextmanager
def silent_addresses(count: int, *, accepts: bool = False) -> Iterator[list[str]]:
    """Give ``count`` different addresses, up to 3,000, that all lead to one listener.

    Args:
        accepts: whether TCP connects, and nothing comes then; else not even that.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096 if accepts else 0)
        for _ in range(0 if accepts else 4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        # 0x7f.1 is 127.0.0.1, and each number may begin with zeros.
        names = (
            f"0x{'0' * first}7f.0x{'0' * second}1:{port}"
            for first, second in itertools.product(range(_MOST_ZEROS + 1), repeat=2)
        )
        addresses = list(itertools.islice(names, count))
        assert len(addresses) == count
        yield addresses


@contextlib.contextmanager
def hanging_lookups() -> Iterator[threading.Event]:
    """Let lookups of host names hang until the event is set; then each name is 127.0.0.1."""
    real, release = socket.getaddrinfo, threading.Event()

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if arguments[3:] == (0, socket.AI_NUMERICHOST):
            return real(host, *arguments)
        assert release.wait(60)
        return real("127.0.0.1", *arguments)

    with mock.patch("nsqclient.runtime.name_lookup.socket.getaddrinfo", look_up):
        try:
            yield release
        finally:
            release.set()
            for lookup in list(name_lookup._lookups.values()):
                lookup.join(60)
            name_lookup._lookups.clear()


@contextlib.contextmanager
def listing(addresses: Iterable[str]) -> Iterator[Recorder]:
    """Run an nsqlookupd that lists these nsqds, for every topic and as all of its cluster."""
    producers = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        producers.append({
            "remote_address": f"{host}:1", "hostname": "h", "broadcast_address": host,
            "tcp_port": int(port), "http_port": 1, "version": "1.3.0",
        })
    with recording() as server:
        server.body = json.dumps({"channels": [], "producers": producers}).encode()
        yield server
