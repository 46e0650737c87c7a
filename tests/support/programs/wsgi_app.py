"""A WSGI application for gunicorn --preload: it has published before the workers are forked.

Each request publishes one message and answers with the worker's process id. Environment:
NSQD, the address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from nsqclient import Producer

producer = Producer([os.environ["NSQD"]])
producer.publish("events", b"preload")


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Publish the path, with and without waiting."""
    body = environ["PATH_INFO"].encode()
    producer.publish("events", body, timeout=5)
    producer.publish_async("events", body, timeout=5).result(5)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % os.getpid()]
