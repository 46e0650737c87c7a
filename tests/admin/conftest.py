"""An embedded cluster with an admin page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser.admin import Admin, Cluster
from tests.support.servers.factories import LookupdFactory, ServerFactory


@pytest.fixture
def cluster(leak_guard: None, tmp_path: Path) -> Iterator[Cluster]:
    nsqds, lookupds = ServerFactory("embedded", tmp_path), LookupdFactory("embedded", tmp_path)
    found = Cluster(nsqds, lookupds)
    yield found
    found.close()
    nsqds.close()
    lookupds.close()


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return cluster.admin()


@pytest.fixture
def events(cluster: Cluster) -> None:
    """The topic ``events`` with the channel ``archive``: three messages on each nsqd."""
    cluster.fill("events", "archive")
