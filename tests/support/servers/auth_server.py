"""An auth server for nsqd, as nsqd asks it: HTTP, JSON, one rule."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

#: What the auth server says to a question: an HTTP status, or a JSON object with 200.
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

    def __enter__(self) -> AuthServer:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = dict(parse_qsl(
                    urlsplit(self.path).query, keep_blank_values=True, errors="surrogateescape"
                ))
                owner.questions.append(query)
                answer = owner.rule(query)
                body = b"" if isinstance(answer, int) else json.dumps(answer).encode()
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.address = "127.0.0.1:%d" % self._server.server_address[1]
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
