"""``Notifier``: tells a URL of each action, as nsqadmin does, without holding the action up."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import requests
from werkzeug.wrappers import Request

from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.http.limits import limit
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.plurals import counted
from nsqclient.runtime.workers import WorkerPool

logger = logging.getLogger("nsqclient.admin")

#: Notifications that wait for a slow endpoint; beyond that the newest are dropped, and logged.
_MOST_WAITING = 100


class Notifier:
    """Posts JSON to an endpoint, one after the other, in a thread of its own.

    Args:
        endpoint: URL; empty: nothing is sent, and there is no thread.
        timeout: seconds for the connection, and for the answer.

    Threads: any. ``close()`` gives what waits a moment.
    """

    def __init__(self, endpoint: str, timeout: float) -> None:
        self._endpoint = endpoint
        parts = urlsplit(endpoint)
        # Host and port alone: the rest may hold a token, as in the URLs of chat services.
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._timeout = timeout
        self._pool: WorkerPool[dict[str, Any]] = WorkerPool("nsq-admin-notify", 1, self._post)

    def tell(
        self, request: Request, user: str, action: str, topic: str, channel: str = "",
        node: str = "",
    ) -> None:
        """Report one action that a request has carried out."""
        logger.info(
            "%s topic=%s channel=%s node=%s user=%s from=%s", action, printable(topic),
            printable(channel) or "-", printable(node, LONGEST_TEXT) or "-",
            printable(user, LONGEST_TEXT) or "-", printable(request.remote_addr or ""),
        )
        if not self._endpoint:
            return
        if len(self._pool) >= _MOST_WAITING:
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
        """Send what waits, for half a second at most, and end the thread."""
        left = self._pool.stop(Deadline(0.5))
        if left:
            logger.warning("not sent: %s", counted(len(self._pool.take_all()) + 1, "notification"))

    def _post(self, content: dict[str, Any]) -> None:
        try:
            # Its status is enough: what else it says is not read, however long it may be.
            with requests.Session() as session:
                limit(session)
                with session.post(
                    self._endpoint, json=content, timeout=(self._timeout, self._timeout),
                    allow_redirects=False, stream=True,
                ) as answer:
                    answer.raise_for_status()
        except requests.RequestException as exc:
            logger.warning("notification of %s %s to %s failed: %s", content["action"],
                           printable(content["topic"]), self._shown, _reason(exc))


def _reason(exc: requests.RequestException) -> str:
    """What went wrong. Not the exception's text: it repeats the URL."""
    if exc.response is not None:
        return f"HTTP {exc.response.status_code}"
    if isinstance(exc, requests.Timeout):
        return "no answer in time"
    if isinstance(exc, requests.exceptions.SSLError):
        return "TLS failed"
    if isinstance(exc, requests.ConnectionError):
        return "no connection, or it broke"
    return type(exc).__name__
