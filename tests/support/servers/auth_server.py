"""An auth server for nsqd, as nsqd asks it: HTTP, JSON, one rule."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.servers.http_recorder import Recorded, recording

#: The answer of the auth server: an HTTP status, or a JSON object with 200.
Rule = Callable[[dict[str, str]], "int | dict[str, Any]"]


def granted(identity: str = "joe", topic: str = "^events$", **more: Any) -> dict[str, Any]:
    """An answer that permits everything on ``topic``; ``more`` replaces its fields."""
    row = {"permissions": ["subscribe", "publish"], "topic": topic, "channels": [".*"]}
    return {"ttl": 3600, "identity": identity, "identity_url": "", "authorizations": [row], **more}


NOTHING: dict[str, Any] = {"ttl": 3600, "identity": "", "identity_url": "", "authorizations": []}


class AuthServer:
    """Listens on a free port of 127.0.0.1 while the ``with`` block lasts.

    ``rule`` may be replaced at any time; ``questions`` are the queries that came, in order.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.questions: list[dict[str, str]] = []
        self._running = contextlib.ExitStack()

    def __enter__(self) -> AuthServer:
        server = self._running.enter_context(recording())
        server.answer = self._answer
        self.address = server.address
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._running.close()

    def _answer(self, request: Recorded) -> tuple[int, bytes]:
        query = dict(parse_qsl(
            urlsplit(request.path).query, keep_blank_values=True, errors="surrogateescape"
        ))
        self.questions.append(query)
        answer = self.rule(query)
        return (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())
