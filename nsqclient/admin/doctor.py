"""``DoctorRunner``: the findings of ``nsqclient doctor`` for the servers of the page."""

from __future__ import annotations

import threading
import time

from nsqclient.admin.access_control import RequestError
from nsqclient.admin.settings import AddressMap, AdminSettings
from nsqclient.doctor.diagnosis import Diagnosis, Target
from nsqclient.doctor.findings import Finding
from nsqclient.http.ask_all import UpstreamError
from nsqclient.http.cluster import Cluster, Node
from nsqclient.runtime.addresses import parse_address

#: nsqds that are checked, and seconds for which findings are shared.
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
        """Return the findings of a run that is at most some seconds old, or of the run that ended
        before the run that is under way.

        Blocks: for a run, at most some seconds for each 16 servers that do not answer.
        Raises:
            RequestError: the first run is under way: requests that waited for it could occupy
                every thread of the page.
        """
        if not self._running.acquire(blocking=False):
            if not self._findings:
                raise RequestError(429, "DOCTOR_RUNNING",
                                   "the servers are being checked: try again in some seconds")
            return self._findings
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
