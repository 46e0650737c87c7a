"""``Context``: the parts of one admin page, its doctor, and the report of each action."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import requests
from flask import current_app, request

from nsqclient.admin.access_control import RequestError, user_of
from nsqclient.admin.collector import Collector, LostNodes
from nsqclient.admin.messages import MessagePeeker, Replayer
from nsqclient.admin.settings import AddressMap, AdminSettings
from nsqclient.display import LONGEST_TEXT, counted, printable
from nsqclient.cluster.doctor.diagnosis import Diagnosis, Target
from nsqclient.cluster.doctor.findings import Finding
from nsqclient.cluster.ask_all import UpstreamError
from nsqclient.cluster.cluster import Cluster, Node
from nsqclient.cluster.actions import ClusterActions
from nsqclient.runtime.addresses import parse_address
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool

_MOST_NSQDS = 100
_KEEP = 10.0


class DoctorRunner:
    """Runs one diagnosis at a time. Threads: any."""

    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._running = threading.Lock()  # held during a run
        self._findings: list[Finding] = []
        self._ended_at = 0.0

    def findings(self) -> list[Finding]:
        """Return the findings of a run that is at most some seconds old. Blocks: for a run."""
        if not self._running.acquire(blocking=False):
            raise RequestError(429, "DOCTOR_RUNNING",
                               "the servers are being checked: try again in some seconds")
        try:
            if not self._findings or time.monotonic() - self._ended_at > _KEEP:
                with Diagnosis(self._target()) as diagnosis:
                    diagnosis.run()
                self._findings, self._ended_at = diagnosis.findings, time.monotonic()
            return self._findings
        finally:
            self._running.release()

    def _target(self) -> Target:
        settings, cluster = self._settings, self._cluster
        rewrite = AddressMap(settings.rewrite_addresses)
        lookupds = [client.address for client in cluster.lookupds().values()]
        nodes: tuple[Node, ...] = ()
        if not lookupds:
            try:
                nodes = cluster.recent_nodes(progressive=True).nodes
            except UpstreamError:
                pass  # no nsqd answers over HTTP: the checks say why
        return Target(
            "", "", [node.tcp_reached_at for node in nodes], lookupds,
            list(settings.nsqd_http_addresses), settings.consumer_config,
            (settings.connect_timeout, settings.request_timeout), settings.http_config,
            lambda address: rewrite(*parse_address(address)), _MOST_NSQDS,
        )


logger: logging.Logger = logging.getLogger("nsqclient.admin")

_KEY = "nsqclient.admin"
_MOST_NOTIFICATIONS = 100


class Notifier:
    """Posts each action as JSON to an endpoint (empty: none), in its own thread. Threads: any."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        self._endpoint = endpoint
        parts = urlsplit(endpoint)
        # Only host and port: the path may contain a token, as in the URLs of chat services.
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._timeout = timeout
        self._pool: WorkerPool[dict[str, Any]] = WorkerPool("nsq-admin-notify", 1, self._post)

    def report(self, user: str, action: str, topic: str, channel: str, node: str) -> None:
        """Log one action of the current request, and post it."""
        logger.info(
            "%s topic=%s channel=%s node=%s user=%s from=%s", action, printable(topic),
            printable(channel) or "-", printable(node, LONGEST_TEXT) or "-",
            printable(user, LONGEST_TEXT) or "-", printable(request.remote_addr or ""),
        )
        if not self._endpoint:
            return
        if len(self._pool) >= _MOST_NOTIFICATIONS:
            logger.warning("notification of %s %s dropped: %s is too slow", action,
                           printable(topic), self._shown)
            return
        port = request.environ.get("REMOTE_PORT")
        optional = {"channel": channel, "node": node, "user": user}
        self._pool.start()
        self._pool.put({
            "action": action,
            "topic": topic,
            "timestamp": int(time.time()),
            "remote_ip": f"{request.remote_addr}:{port}" if port else request.remote_addr,
            "user_agent": request.user_agent.string,
            "url": request.url,
            "via": socket.gethostname(),
            **{name: value for name, value in optional.items() if value},
        })

    def close(self) -> None:
        """Send queued notifications for half a second at most, and end the thread."""
        left = self._pool.stop(Deadline(0.5))
        if left:
            logger.warning("%s not sent", counted(len(self._pool.take_all()) + 1, "notification"))

    def _post(self, content: dict[str, Any]) -> None:
        try:
            # Only the status counts: the body is not read, however long it may be.
            with requests.Session() as session:
                with session.post(
                    self._endpoint, json=content, timeout=(self._timeout, self._timeout),
                    allow_redirects=False, stream=True,
                ) as response:
                    response.raise_for_status()
        except requests.RequestException as exc:
            logger.warning("notification of %s %s to %s failed: %s", content["action"],
                           printable(content["topic"]), self._shown, _reason(exc))


def _reason(exc: requests.RequestException) -> str:
    return f"HTTP {exc.response.status_code}" if exc.response is not None else type(exc).__name__


def make_cluster(settings: AdminSettings) -> Cluster:
    return Cluster(
        settings.lookupd_http_addresses, settings.nsqd_http_addresses, settings.http_config,
        connect_timeout=settings.connect_timeout, timeout=settings.request_timeout,
        rewrite=AddressMap(settings.rewrite_addresses))


class Context:
    """The parts of one admin page. ``close()`` ends their threads. Threads: any."""

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        self.cluster: Cluster = make_cluster(settings)
        self.pages: dict[str, tuple[float, bytes]] = {}
        self.lost: LostNodes = LostNodes()
        self.collector: Collector = Collector(
            self.cluster, self.lost, settings.refresh_interval)
        self.actions: ClusterActions = ClusterActions(self.cluster)
        self.peeker: MessagePeeker = MessagePeeker(self.cluster, settings)
        self.replayer: Replayer = Replayer(self.cluster, settings)
        self.doctor: DoctorRunner = DoctorRunner(self.cluster, settings)
        self.notifier: Notifier = Notifier(
            settings.notification_http_endpoint, settings.request_timeout)

    def close(self) -> None:
        self.peeker.close()
        self.replayer.close()
        self.cluster.end_rounds()
        self.notifier.close()
        self.cluster.close()

    def report(self, action: str, topic: str, channel: str = "", node: str = "") -> None:
        self.notifier.report(user_of(self.settings, request), action, topic, channel, node)
        self.refresh()

    def refresh(self) -> None:
        self.collector.refresh()
        self.pages.clear()

    def register(self, extensions: dict[str, object]) -> None:
        extensions[_KEY] = self


def context() -> Context:
    found = current_app.extensions[_KEY]
    assert isinstance(found, Context)
    return found
