"""pytest fixtures for users of nsqclient: servers for one test, and their published messages.

Registered under the entry point ``pytest11``, so installing nsqclient enables them. The servers
are imported only when a test requests one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nsqclient.devserver import Nsqd, Nsqlookupd
    from nsqclient.testing.messages import Published


@pytest.fixture
def nsqd_factory() -> Iterator[Callable[..., Nsqd]]:
    """Start embedded nsqds: ``nsqd_factory(msg_timeout=2.0)``; they stop with the test.

    Options: as :class:`nsqclient.devserver.Nsqd`.
    """
    from nsqclient.devserver import Nsqd

    started: list[Nsqd] = []

    def start(**options: Any) -> Nsqd:
        server = Nsqd(**options)
        server.start()
        started.append(server)
        return server

    yield start
    for server in reversed(started):
        server.stop()


@pytest.fixture
def nsqd(nsqd_factory: Callable[..., Nsqd]) -> Nsqd:
    """A running embedded nsqd on free ports."""
    return nsqd_factory()


@pytest.fixture
def nsqlookupd() -> Iterator[Nsqlookupd]:
    """A running embedded nsqlookupd on free ports."""
    from nsqclient.devserver import Nsqlookupd

    with Nsqlookupd() as server:
        yield server


@pytest.fixture
def published(nsqd: Nsqd) -> Published:
    """Messages published to ``nsqd``: ``published("orders")`` returns the list of bodies."""
    from nsqclient.testing.messages import Published

    return Published(nsqd)
