"""An admin page on a small cluster, and the requests of tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

from nsqclient.admin import AdminSettings
from nsqclient.admin.app import AdminServer
from tests.support.waiting import wait_until

TIMEOUT = 20.0


class Admin:
    """An admin page at a URL; ``get`` and the others return the answer, whatever its status."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def get(self, path: str, **headers: str) -> requests.Response:
        return self.raw("GET", path, headers=headers)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def scrape(self) -> dict[tuple[str, ...], float]:
        """Read ``/metrics`` as Prometheus does: (name, *labels) -> value."""
        answer = self.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        samples = [sample for family in text_string_to_metric_families(answer.text)
                   for sample in family.samples]
        found = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
        assert len(found) == len(samples)  # no series occurs twice
        return found

    def post(self, path: str, values: Any = None, **headers: str) -> requests.Response:
        return self.raw("POST", path, json={} if values is None else values, headers=headers)

    def delete(self, path: str, values: Any = None, **headers: str) -> requests.Response:
        return self.raw("DELETE", path, json=values, headers=headers)

    def raw(self, method: str, path: str, **options: Any) -> requests.Response:
        return requests.request(
            method, f"{self.url}{path}", timeout=TIMEOUT, allow_redirects=False, **options)


@contextmanager
def running_admin(**options: Any) -> Iterator[Admin]:
    """An admin page with these settings; lists become tuples; every user may act."""
    options = {"allow_actions": "admin_users" not in options, "refresh_interval": 0.2, **options}
    settings = AdminSettings(**{
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
    })
    with AdminServer(settings, port=0) as server:
        yield Admin(server.url)


class Cluster:
    """nsqds and nsqlookupds of one kind, with admin pages on them."""

    def __init__(
        self, server_factory: Callable[..., Any], lookupd_factory: Callable[..., Any],
        nsqd_count: int = 2,
    ) -> None:
        self._stack = ExitStack()
        self.lookupds = [lookupd_factory()]
        self.nsqds = [
            server_factory(lookupd_tcp_addresses=[each.tcp_address for each in self.lookupds])
            for _ in range(nsqd_count)
        ]
        wait_until(lambda: len(self.lookupds[0].get("/nodes").json()["producers"]) == nsqd_count)

    @property
    def addresses(self) -> list[str]:
        return [nsqd.http_address for nsqd in self.nsqds]

    def admin(self, *, direct: bool = False, **options: Any) -> Admin:
        """An admin page that queries the nsqlookupds, or the nsqds directly."""
        where = {"nsqd_http_addresses": self.addresses} if direct else {
            "lookupd_http_addresses": [each.http_address for each in self.lookupds]}
        return self._stack.enter_context(running_admin(**{**where, **options}))

    def fill(self, topic: str, channel: str, messages: int = 3) -> None:
        for nsqd in self.nsqds:
            nsqd.create(topic, channel)
            for number in range(messages):
                nsqd.post("/pub", b'{"number": %d}' % number, topic=topic)
            wait_until(
                lambda: nsqd.stats(topic, channel)["depth"] == messages,
                message="the channel has the messages",
            )
        wait_until(lambda: self.registered(topic) == set(self.addresses))

    def registered(self, topic: str) -> set[str]:
        return {
            f"{each['broadcast_address']}:{each['http_port']}"
            for each in self.lookupds[0].get("/nodes").json()["producers"]
            if topic in each["topics"]
        }

    def close(self) -> None:
        self._stack.close()
