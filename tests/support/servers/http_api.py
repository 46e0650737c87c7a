"""What tests use of a server, the same for the real and the embedded one."""

from typing import Any

import requests

from tests.support.servers.ports import free_port

#: Seconds. A server puts its list of topics into place before it answers, and on ext4 a rename
#: over an older file waits for the disk: 10 s were seen on a busy one.
TIMEOUT = 60.0
_START_ATTEMPTS = 5


class HttpApi:
    """Calls one server's HTTP API; every call opens and closes its own connection."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **params: str) -> requests.Response:
        answer = requests.get(f"http://{self.address}{path}", params=params, timeout=TIMEOUT)
        answer.raise_for_status()
        return answer

    def post(self, path: str, body: bytes = b"", **params: str) -> requests.Response:
        answer = requests.post(
            f"http://{self.address}{path}", data=body, params=params, timeout=TIMEOUT
        )
        answer.raise_for_status()
        return answer

    def create(self, topic: str, *channels: str) -> None:
        """Create a topic of an nsqd with some channels, unless they exist."""
        self.post("/topic/create", topic=topic)
        for channel in channels:
            self.post("/channel/create", topic=topic, channel=channel)

    def stats(self, topic: str | None = None, channel: str | None = None) -> dict[str, Any]:
        """Return nsqd's /stats, or the part of a topic or channel; empty if it does not exist."""
        names = {} if topic is None else {"topic": topic}
        everything: dict[str, Any] = self.get("/stats", format="json", **names).json()
        if topic is None:
            return everything
        found = _named(everything["topics"] or [], "topic_name", topic)
        if channel is None:
            return found
        return _named(found.get("channels"), "channel_name", channel)


class ServerUnderTest(HttpApi):
    """A server that keeps its ports of 127.0.0.1, and an nsqd its data, over a restart."""

    #: ``embedded`` or ``real``.
    kind = ""

    def __init__(self) -> None:
        super().__init__("")
        self.tcp_address = ""

    @property
    def http_address(self) -> str:
        return self.address

    @property
    def https_address(self) -> str:
        """The HTTP API with TLS as ``host:port``; of an nsqd with a certificate."""
        raise NotImplementedError

    def start(self) -> None:
        is_new = not self.tcp_address
        for left in reversed(range(_START_ATTEMPTS if is_new else 1)):
            if is_new:
                self.tcp_address, self.address = (f"127.0.0.1:{free_port()}" for _ in range(2))
            try:
                return self._launch()
            except OSError:  # somebody took a port meanwhile
                if not left:
                    raise

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Kill it if it runs: an nsqd loses its messages in memory."""
        raise NotImplementedError

    def restart(self) -> None:
        self.stop()
        self.start()

    def _launch(self) -> None:
        """Start it on its ports. Raises OSError if it did not come to listen."""
        raise NotImplementedError


def registered(lookupd: Any, topic: str) -> list[dict[str, Any]]:
    """Return the producers that an nsqlookupd names of a topic, none if it does not know it."""
    if topic not in lookupd.get("/topics").json()["topics"]:
        return []
    found: list[dict[str, Any]] = lookupd.get("/lookup", topic=topic).json()["producers"]
    return found


def _named(entries: list[dict[str, Any]] | None, key: str, name: str) -> dict[str, Any]:
    return next((entry for entry in entries or () if entry[key] == name), {})
