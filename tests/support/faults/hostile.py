"""An nsqd and an nsqlookupd that follow the protocol, and put control characters into all texts."""

import contextlib
import json
import socket
import socketserver
import threading
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nsqclient.protocol.frames import encode_frame
from tests.support.servers.http_recorder import Recorded, Recorder

#: Ends a log line and forges a second one; moves the cursor, sets the title of a terminal, clears
#: it; C1, DEL, a line separator, a change of direction.
NASTY = "x\n2026/11/22 00:00:00 INFO forged\r\x1b[2J\x1b]0;owned\x07\x00\x9b31m\x7f\u2028\u202ey"
#: The same as bytes of a frame, with half of a surrogate pair, which JSON may not hold.
NASTY_BYTES = NASTY.encode() + "\ud800".encode("utf-8", "surrogatepass")
_WAIT = 20.0


def control_characters(text: str) -> list[str]:
    """The characters of a text that no log, table or page may hold, without its own newlines."""
    return [
        each for each in text
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") and each != "\n"
    ]


class HttpApi(Recorder):
    def __init__(self, respond: Callable[[str, dict[str, str]], tuple[int, Any]]) -> None:
        super().__init__()

        def answer(request: Recorded) -> tuple[int, bytes]:
            parts = urlsplit(request.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, values = respond(parts.path.strip("/"), query)
            return status, json.dumps(values).encode()

        self.answer = answer

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Hostile:
    def __init__(self) -> None:
        self.http = HttpApi(self.respond)
        #: Cleared: HTTP requests hang until it is set.
        self.answers = threading.Event()
        self.answers.set()
        self._servers: list[socketserver.BaseServer] = [self.http]
        self._threads: list[threading.Thread] = []

    @property
    def http_address(self) -> str:
        return self.http.address

    def respond(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        for server in self._servers:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.answers.set()
        self._end_connections()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join(_WAIT)

    def _end_connections(self) -> None:
        pass


class HostileNsqd(_Hostile):
    """An nsqd. It accepts consumers, sends them error frames and ends their connections.

    Args:
        topic, channel: names that it has, beside nasty ones.
        counters: returns its fields of the topic and the channel in ``/stats``.
    """

    def __init__(
        self, topic: str, channel: str,
        counters: Callable[[], dict[str, Any]] = lambda: {"depth": 7, "message_count": 7},
    ) -> None:
        super().__init__()
        self._names = topic, channel
        self._counters = counters
        self._connections: set[socket.socket] = set()
        owner = self

        class Dialogue(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                owner._connections.add(self.request)
                with contextlib.suppress(OSError, EOFError):
                    owner._talk(self.request)
                owner._connections.discard(self.request)

        class Tcp(socketserver.ThreadingTCPServer):
            daemon_threads = False

        self._tcp = Tcp(("127.0.0.1", 0), Dialogue)
        self._servers.append(self._tcp)

    @property
    def tcp_address(self) -> str:
        return f"127.0.0.1:{self._tcp.server_address[1]}"

    def as_producer(self) -> dict[str, Any]:
        return {
            "remote_address": NASTY, "hostname": NASTY, "broadcast_address": "127.0.0.1",
            "tcp_port": self._tcp.server_address[1], "http_port": self.http.port,
            "version": NASTY, "topology_region": NASTY, "topology_zone": NASTY,
            "topics": [self._names[0], NASTY], "tombstones": [False, True],
        }

    def respond(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        self.answers.wait(_WAIT)
        if path == "info":
            return 200, {**self.as_producer(), "start_time": 1, "hostname": NASTY}
        if path == "stats":
            return 200, self._stats()
        return 500, {"message": NASTY}

    def _stats(self) -> dict[str, Any]:
        texts = ("client_id", "hostname", "version", "remote_address", "user_agent",
                 "tls_version", "tls_cipher_suite", "auth_identity", "auth_identity_url",
                 "topology_region", "topology_zone")
        client = {**dict.fromkeys(texts, NASTY), "authed": True, "tls": True,
                  "pub_counts": [{"topic": NASTY, "count": 1}]}
        counters = self._counters()
        channels = [{"channel_name": name, "clients": [client], "client_count": 1,
                     **counters} for name in (self._names[1], NASTY)]
        topics = [{"topic_name": name, "channels": channels, **counters}
                  for name in (self._names[0], NASTY)]
        return {"version": NASTY, "health": NASTY, "start_time": 1, "topics": topics,
                "producers": [client]}

    def _talk(self, sock: socket.socket) -> None:
        sock.settimeout(_WAIT)
        reader = sock.makefile("rb")
        if reader.read(4) != b"  V2":
            return

        def send(kind: int, data: bytes) -> None:
            sock.sendall(encode_frame(kind, data))

        while line := reader.readline():
            command = line.split()[0]
            if command in (b"IDENTIFY", b"AUTH", b"PUB", b"MPUB", b"DPUB"):
                reader.read(int.from_bytes(reader.read(4), "big"))
            if command == b"IDENTIFY":
                send(0, json.dumps({"version": NASTY, "auth_required": True}).encode())
            elif command == b"AUTH":
                send(0, json.dumps({"identity": NASTY, "identity_url": NASTY}).encode())
            elif command == b"SUB":
                send(0, b"OK")
            elif command == b"RDY":
                send(1, b"E_FIN_FAILED " + NASTY_BYTES)
                send(1, b"E_INVALID " + NASTY_BYTES)
                return
            elif command in (b"PUB", b"MPUB", b"DPUB"):
                send(1, b"E_PUB_FAILED " + NASTY_BYTES)
                return
            elif command == b"CLS":
                send(0, b"CLOSE_WAIT")

    def _end_connections(self) -> None:
        for sock in list(self._connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class HostileNsqlookupd(_Hostile):
    """An nsqlookupd that lists some nsqds, and some that cannot be.

    Args:
        topic: a topic that it knows, beside a nasty one.
        nsqds: that it lists.
    """

    def __init__(self, topic: str, nsqds: Iterable[HostileNsqd] = ()) -> None:
        super().__init__()
        self._topic = topic
        self._nsqds = list(nsqds)
        self.listed: list[dict[str, Any]] = []

    def respond(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        self.answers.wait(_WAIT)
        good = [nsqd.as_producer() for nsqd in self._nsqds]
        bad = [{**each, "broadcast_address": NASTY, "hostname": NASTY} for each in good[:1]]
        bad += [{**each, "broadcast_address": "127.0.0.1/admin?x="} for each in good[:1]]
        bad += [{**each, "hostname": 5} for each in good[:1]]
        if path == "nodes":
            return 200, {"producers": good + bad + self.listed}
        if path == "lookup":
            return 200, {"channels": [NASTY], "producers": good + bad + self.listed}
        if path == "topics":
            return 200, {"topics": [self._topic, NASTY]}
        if path == "channels":
            return 200, {"channels": [NASTY]}
        if path == "info":
            return 200, {"version": NASTY}
        return 500, {"message": NASTY}
