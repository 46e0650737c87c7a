"""A pytest plugin with the fixtures of ansq's tests, which ansq's sdist leaves out.

``nsqd`` and ``nsqlookupd`` are found in PATH and listen on NSQ's own ports, where ansq looks for
them by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

_SECONDS = 30.0
_PAUSE = 0.02


async def _wait_until(condition: Callable[[], object]) -> None:
    for _ in range(int(_SECONDS / _PAUSE)):
        if condition():
            return
        await asyncio.sleep(_PAUSE)
    raise TimeoutError(f"the condition does not hold after {_SECONDS:g} s")


class Server:
    """A process of nsqd or nsqlookupd."""

    host = "127.0.0.1"

    def __init__(self, program: str, port: int, http_port: int, flags: Iterable[str]) -> None:
        self.port = port
        self.tcp_address = f"{self.host}:{port}"
        self.http_address = f"{self.host}:{http_port}"
        self._words = [program, f"--tcp-address={self.tcp_address}",
                       f"--http-address={self.http_address}",
                       f"--broadcast-address={self.host}", *flags]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process, and wait until /ping answers."""
        self._process = await asyncio.create_subprocess_exec(*self._words)
        await _wait_until(self._answers)

    async def stop(self) -> None:
        """Stop the process. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            await process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http_address}/ping", timeout=5):
                return True
        except OSError:
            return False


@contextlib.asynccontextmanager
async def _running(server: Server) -> AsyncIterator[Server]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def create_nsqd(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A function that returns an asynchronous context manager for an nsqd."""

    def create(
        port: int = 4150, http_port: int = 4151, lookupd_tcp_addresses: Iterable[str] = ()
    ) -> Any:
        flags = [f"--data-path={tmp_path_factory.mktemp('nsqd')}"]
        flags += [f"--lookupd-tcp-address={address}" for address in lookupd_tcp_addresses]
        return _running(Server("nsqd", port, http_port, flags))

    return create


@pytest.fixture
def create_nsqlookupd() -> Callable[..., Any]:
    """A function that returns an asynchronous context manager for an nsqlookupd."""

    def create(port: int = 4160, http_port: int = 4161) -> Any:
        return _running(Server("nsqlookupd", port, http_port, ()))

    return create


@pytest.fixture
async def nsqd(create_nsqd: Callable[..., Any]) -> AsyncIterator[Server]:
    """An nsqd on NSQ's own ports."""
    async with create_nsqd() as server:
        yield server


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait until a condition holds."""
    return _wait_until
