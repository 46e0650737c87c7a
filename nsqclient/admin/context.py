"""``Context``: what every request handler of one admin page works with."""

from __future__ import annotations

from flask import current_app

from nsqclient.admin.actions import Actions
from nsqclient.admin.cluster import Cluster
from nsqclient.admin.collector import Collector
from nsqclient.admin.notifications import Notifier
from nsqclient.admin.peeking import Peeks
from nsqclient.admin.settings import AdminSettings

_KEY = "nsqclient.admin"


class Context:
    """The parts of one admin page. ``close()`` ends their threads. Threads: any."""

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        self.cluster = Cluster(settings)
        self.collector = Collector(self.cluster)
        self.actions = Actions(self.cluster)
        self.peeks = Peeks(self.cluster)
        self.notifier = Notifier(settings.notification_http_endpoint, settings.request_timeout)

    def close(self) -> None:
        """End everything. Idempotent."""
        self.peeks.close()
        self.cluster.stop_asking()
        self.collector.close()
        self.notifier.close()
        self.cluster.close()

    def register(self, extensions: dict[str, object]) -> None:
        """Make this the context of a Flask application."""
        extensions[_KEY] = self


def context() -> Context:
    """The context of the request that is being answered."""
    found = current_app.extensions[_KEY]
    assert isinstance(found, Context)
    return found
