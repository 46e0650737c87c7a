"""AUTH: the permissions of a client, from an auth server over HTTP."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from nsqclient.devserver.protocol.commands import (
    Auth, CommandError, Dpub, Event, OpenTopic, Pub, Sub,
)
from nsqclient.devserver.protocol.commands import decode_json, quote, read_fields
from nsqclient.display import LONGEST_TEXT, printable

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

#: Seconds to wait for another server: nsqd's default.
_TIMEOUT = 5.0
#: Bytes of an answer that are read.
MAX_ANSWER = 1024 * 1024

_PERMISSIONS = ("subscribe", "publish")


class Authorization(NamedTuple):
    topic: re.Pattern[str]
    channels: list[re.Pattern[str]]
    permissions: list[str]

    def allows(self, topic: str, channel: str) -> bool:
        if ("subscribe" if channel else "publish") not in self.permissions:
            return False
        return self.topic.search(topic) is not None and any(
            pattern.search(channel) is not None for pattern in self.channels
        )


class AuthState(NamedTuple):
    identity: str
    identity_url: str
    authorizations: list[Authorization]
    ttl: int


def read_state(body: bytes) -> AuthState:
    answer = decode_json(
        body, {"ttl": int, "identity": str, "identity_url": str, "authorizations": list})
    ttl = answer.get("ttl", 0)
    if ttl <= 0:
        raise ValueError(f"invalid TTL {ttl} (must be >0)")
    return AuthState(
        answer.get("identity", ""), answer.get("identity_url", ""),
        [_authorization(row) for row in answer.get("authorizations", ())], ttl)


def _authorization(row: Any) -> Authorization:
    fields = read_fields(row, {"topic": str, "channels": list, "permissions": list})
    permissions = fields.get("permissions", [])
    for permission in permissions:
        if permission not in _PERMISSIONS:
            raise ValueError(f"unknown permission {permission}")
    try:
        return Authorization(
            re.compile(fields.get("topic", "")), list(map(re.compile, fields.get("channels", ()))),
            permissions)
    except (re.error, TypeError, OverflowError, RecursionError) as exc:
        raise ValueError(f"unable to compile a topic or channel: {exc}") from exc


class Authorizer:
    """Authorizes one client's commands, one after the other; :meth:`stats` from any thread.

    Args:
        describe_tls: returns whether the client uses TLS, and the name in its certificate.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        remote_ip: str,
        describe_tls: Callable[[], tuple[bool, str]],
    ) -> None:
        self._addresses = list(addresses)
        self._remote_ip = remote_ip
        self._describe_tls = describe_tls
        self._secret = b""
        self._state: AuthState | None = None
        self._expires = 0.0

    def check(self, event: Event) -> dict[str, Any] | None:
        """Authorize a command; return the response to an AUTH, None for any other.

        Blocks during a request to the auth server. Raises CommandError.
        """
        if isinstance(event, Auth):
            return self._authenticate(event.secret)
        if isinstance(event, Sub):
            self._authorize("SUB", event.topic, event.channel)
        elif isinstance(event, OpenTopic):  # precedes every MPUB
            self._authorize("MPUB", event.topic, "")
        elif isinstance(event, (Pub, Dpub)):
            self._authorize(type(event).__name__.upper(), event.topic, "")
        return None

    def stats(self) -> dict[str, Any]:
        state = self._state
        if state is None:
            return {}
        values = {
            "authed": bool(state.authorizations),
            "auth_identity": state.identity,
            "auth_identity_url": state.identity_url,
        }
        return {key: value for key, value in values.items() if value}

    def _authenticate(self, secret: bytes) -> dict[str, Any]:
        if self._state is not None and self._state.authorizations:
            raise CommandError("E_INVALID", b"AUTH already set")
        if not self._addresses:
            raise CommandError("E_AUTH_DISABLED", b"AUTH disabled")
        self._secret = secret
        state = self._ask()
        if not state.authorizations:
            raise CommandError("E_UNAUTHORIZED", b"AUTH no authorizations found")
        return {
            "identity": state.identity,
            "identity_url": state.identity_url,
            "permission_count": len(state.authorizations),
        }

    def _authorize(self, command: str, topic: str, channel: str) -> None:
        if not self._addresses:
            return
        state = self._state
        if state is None or not state.authorizations:
            raise CommandError("E_AUTH_FIRST", f"AUTH required before {command}".encode())
        if self._expires < time.monotonic():
            state = self._ask()
        if not any(row.allows(topic, channel) for row in state.authorizations):
            names = quote(topic.encode()) + b" " + quote(channel.encode())
            raise CommandError("E_UNAUTHORIZED", f"AUTH failed for {command} on ".encode() + names)

    def _ask(self) -> AuthState:
        start = random.randrange(len(self._addresses))
        is_secure, common_name = self._describe_tls()
        query: dict[str, str | bytes] = {
            "common_name": common_name,
            "remote_ip": self._remote_ip,
            "secret": self._secret,
            "tls": "true" if is_secure else "false",
        }
        reasons = []
        for address in self._addresses[start:] + self._addresses[:start]:
            url = address if "://" in address else f"http://{address}/auth"
            try:
                self._state = state = read_state(fetch(
                    f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"))
            except (OSError, ValueError) as exc:
                reasons.append(f"failed to auth against {address} - {exc}")
                continue
            self._expires = time.monotonic() + state.ttl
            return state
        logger.warning("client(%s) AUTH failed %s", self._remote_ip,
                       printable("; ".join(reasons), LONGEST_TEXT))
        raise CommandError("E_AUTH_FAILED", b"AUTH failed")


def fetch(url: str, most: int = MAX_ANSWER) -> bytes:
    """Return up to ``most`` bytes of another server's answer. Raises OSError unless it is a 200.

    Not with ``requests``: a secret may be in the URL, and urllib3 logs URLs at DEBUG.
    """
    import urllib.error  # a server without AUTH does not need it
    import urllib.request
    from http.client import HTTPException

    # Without proxies, as nsqd's own client.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(
            url, headers={"Accept": "application/vnd.nsq; version=1.0"})
        with opener.open(request, timeout=_TIMEOUT) as answer:
            if answer.status == 200:
                body: bytes = answer.read(most)
                return body
            reason = f"got response {answer.status} {answer.reason}"
    except urllib.error.HTTPError as exc:
        with exc:
            reason = f"got response {exc.code} {exc.reason}"
    except (OSError, HTTPException, ValueError) as exc:
        # Without its text, and unchained: a URL in it would show the secret.
        cause = exc.reason if isinstance(exc, urllib.error.URLError) else exc
        reason = getattr(cause, "strerror", None) or type(cause).__name__
    raise OSError(reason)
