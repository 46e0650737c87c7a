"""Fixtures of the manual's tests: a terminal, and a cluster at the usual addresses."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from nsqclient.devserver import Nsqd, Nsqlookupd
from tests.support.docs.terminal import Terminal
from tests.support.waiting import wait_until


class Cluster(NamedTuple):
    nsqd: Nsqd
    lookupd: Nsqlookupd

    @property
    def addresses(self) -> dict[str, str]:
        return {
            "127.0.0.1:4150": self.nsqd.tcp_address, "127.0.0.1:4151": self.nsqd.http_address,
            "127.0.0.1:4160": self.lookupd.tcp_address,
            "127.0.0.1:4161": self.lookupd.http_address,
        }

    def create_topic(self, topic: str) -> None:
        """Make a topic, and wait until the nsqlookupd knows it: consumers ask once a minute."""
        self.nsqd.create_topic(topic)
        url = f"http://{self.lookupd.http_address}/lookup?topic={topic}"
        wait_until(lambda: requests.get(url, timeout=10).ok, 20, f"{topic} was not registered")


@pytest.fixture
def cluster(leak_guard: None) -> Iterator[Cluster]:
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        yield Cluster(nsqd, lookupd)


@pytest.fixture
def empty_terminal(leak_guard: None, tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "a folder"
    folder.mkdir()
    found = Terminal(folder)
    yield found
    found.close()


@pytest.fixture
def terminal(empty_terminal: Terminal, cluster: Cluster) -> Terminal:
    empty_terminal.replace.update(cluster.addresses)
    return empty_terminal
