"""Factories of embedded and real servers, with one interface for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tests.support.servers.http_api import HttpApi
from tests.support.servers.ports import free_port
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd

_START_ATTEMPTS = 5


class ServerUnderTest(Protocol):
    """What an integration test may use of an nsqd, real or embedded."""

    #: ``embedded`` or ``real``.
    kind: str

    @property
    def tcp_address(self) -> str:
        """The TCP port as ``host:port``."""

    @property
    def http_address(self) -> str:
        """The HTTP API as ``host:port``."""

    @property
    def https_address(self) -> str:
        """The HTTP API with TLS as ``host:port``; of an nsqd with a certificate."""

    def get(self, path: str, **params: str) -> Any:
        """GET from the HTTP API."""

    def post(self, path: str, body: bytes = b"", **params: str) -> Any:
        """POST to the HTTP API."""

    def stats(self, topic: str | None = None, channel: str | None = None) -> dict[str, Any]:
        """The /stats of the server, of a topic or of a channel; empty if there is none."""

    def start(self) -> None:
        """Start it on its ports."""

    def stop(self) -> None:
        """Stop it in order."""

    def kill(self) -> None:
        """End it as a crash would: what it holds in memory is lost."""

    def restart(self) -> None:
        """Stop it and start it on the same ports, with the same data."""


class _Embedded(HttpApi):
    """An embedded server that keeps its ports and its data path over a restart."""

    kind = "embedded"

    def __init__(self, server_class: Any, **options: Any) -> None:
        super().__init__("")
        self._class = server_class
        self._options = options
        self._server: Any = None
        self.tcp_address = ""

    @property
    def http_address(self) -> str:
        """The HTTP API as ``host:port``."""
        return self.address

    @property
    def https_address(self) -> str:
        """The HTTP API with TLS as ``host:port``."""
        return str(self._server.https_address)

    def start(self) -> None:
        """Start the server and listen; on new ports the first time."""
        if self.tcp_address:
            self._launch(_port(self.tcp_address), _port(self.address))
            return
        for _ in range(_START_ATTEMPTS - 1):
            try:
                self._launch(free_port(), free_port())
                return
            except OSError:
                continue  # somebody took the port meanwhile
        self._launch(free_port(), free_port())

    def stop(self) -> None:
        """Stop the server, if it runs."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        """End the server without saving anything, if it runs."""
        server, self._server = self._server, None
        if server is not None:
            # nsqlookupd keeps nothing anyway, so it has no kill.
            getattr(server, "kill", server.stop)()

    def restart(self) -> None:
        """Stop if it runs, then start on the same ports with the same data."""
        self.stop()
        self.start()

    def _launch(self, tcp_port: int, http_port: int) -> None:
        server = self._class(
            host="127.0.0.1", tcp_port=tcp_port, http_port=http_port, **self._options
        )
        server.start()
        self._server = server
        self.tcp_address, self.address = server.tcp_address, server.http_address


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


class ServerFactory:
    """Starts nsqds: ``factory(msg_timeout=2.0, lookupd_tcp_addresses=[...])``.

    Options carry the names of nsqd's flags with underscores, durations in seconds. Each server
    has a data path of its own. ``close()`` ends them all.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._started: list[Any] = []

    def __call__(self, **options: Any) -> ServerUnderTest:
        server = self._make(self._folder / f"server-{len(self._started)}", options)
        self._started.append(server)
        server.start()
        return server

    def close(self) -> None:
        """Stop every server that still runs."""
        for server in self._started:
            server.kill()

    def _make(self, folder: Path, options: dict[str, Any]) -> Any:
        if self._kind == "real":
            return RealNsqd(folder, **options)
        from nsqclient.devserver import Nsqd

        folder.mkdir()
        return _Embedded(Nsqd, data_path=str(folder), **options)


class LookupdFactory(ServerFactory):
    def _make(self, folder: Path, options: dict[str, Any]) -> Any:
        folder = folder.with_name(folder.name.replace("server", "lookupd"))
        if self._kind == "real":
            return RealNsqlookupd(folder, **options)
        from nsqclient.devserver import Nsqlookupd

        return _Embedded(Nsqlookupd, **options)
