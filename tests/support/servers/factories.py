"""Factories of embedded and real servers, with one interface for both."""

from pathlib import Path
from typing import Any

from tests.support.servers.http_api import ServerUnderTest
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd


class _Embedded(ServerUnderTest):
    kind = "embedded"

    def __init__(self, server_class: Any, **options: Any) -> None:
        super().__init__()
        self._class = server_class
        self._options = options
        self._server: Any = None

    @property
    def https_address(self) -> str:
        return str(self._server.https_address)

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # nsqlookupd keeps nothing anyway, so kill() would be stop().
            getattr(server, "kill", server.stop)()

    def _launch(self) -> None:
        server = self._class(
            host="127.0.0.1", tcp_port=int(self.tcp_address.rpartition(":")[2]),
            http_port=int(self.address.rpartition(":")[2]), **self._options
        )
        server.start()
        self._server = server


class ServerFactory:
    """Starts nsqds: ``factory(msg_timeout=2.0, lookupd_tcp_addresses=[...])``.

    Options carry the names of nsqd's flags with underscores, durations in seconds. Each server
    has a data path of its own. ``close()`` ends them all.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._started: list[Any] = []

    def __call__(self, **options: Any) -> Any:
        server = self._make(self._folder / f"server-{len(self._started)}", options)
        self._started.append(server)
        server.start()
        return server

    def close(self) -> None:
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
