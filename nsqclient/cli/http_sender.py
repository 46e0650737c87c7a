"""``Sender``: the handler of nsq_to_http, which sends a message to one of its URLs.

``Requester`` makes a message an HTTP request, and the rules of ``--on-status`` say what a rejection
means.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from http.cookiejar import DefaultCookiePolicy
from typing import NamedTuple
from urllib.parse import quote_plus

import requests

from nsqclient import GiveUp, Message, Requeue
from nsqclient.cli.load_balancing import ALL, STRATEGIES, RequestTimes, RoundRobin
from nsqclient.display import without_password
from nsqclient.http.limits import (
    ACCEPT_ENCODING, TotalTimeoutAdapter, TooLarge, UnexpectedEncoding, read_body,
)
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.cli")

_MAX_REDIRECTS = 10
#: Redirects that keep the method and the body.
_KEEPS_BODY = (307, 308)
#: The most that is read of an answer, in bytes, so that its connection can be used again.
_MAX_ANSWER = 1024 * 1024
#: Headers that are sent to every host, in small letters.
_OF_THE_BODY = frozenset(["content-type", "content-encoding", "content-language"])


#: What may follow a rejection.
RETRY, DROP, DEAD_LETTER = ACTIONS = ("retry", "drop", "dead-letter")


class Rule(NamedTuple):
    """What follows an answer with a status from ``first`` to ``last``."""

    first: int
    last: int
    action: str


_STATUS = re.compile(r"([3-5])xx|([3-5]\d\d)(?:-([3-5]\d\d))?")


def parse_rule(text: str) -> Rule:
    """Read ``404=drop``, ``4xx=dead-letter`` or ``500-503=retry``.

    Raises:
        ValueError: it is no such rule.
    """
    status, _, action = text.partition("=")
    found = _STATUS.fullmatch(status)
    if found is None or action not in ACTIONS:
        raise ValueError(
            "write STATUS=ACTION: a status is 404, 4xx or 400-428 (300 to 599), an action"
            f" {', '.join(ACTIONS)}")
    group, first, last = found.groups()
    if group is not None:
        return Rule(int(group) * 100, int(group) * 100 + 99, action)
    rule = Rule(int(first), int(last or first), action)
    if rule.last < rule.first:
        raise ValueError(f"{status} is an empty range")
    return rule


class RequestFailed(Exception):
    """The destination did not accept the message; the text is the reason.

    ``status`` is that of its answer, 0 where none came; ``action`` is what follows.
    """

    def __init__(self, reason: str, status: int = 0, action: str = RETRY) -> None:
        super().__init__(reason)
        self.status = status
        self.action = action


class _Session(requests.Session):
    """Follows redirects, without the user's headers once another host is named.

    Of a POST it follows only those that keep the method and the body: behind the others it would
    become a GET, and its message would be lost with a 200.
    """

    def __init__(self, own_headers: Iterable[str]) -> None:
        super().__init__()
        #: Headers that may be credentials: those that do not describe the body.
        self._own_headers = [name for name in own_headers if name.lower() not in _OF_THE_BODY]

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Called for each answer."""
        if resp.request.method == "POST" and resp.status_code not in _KEEPS_BODY:
            return None
        found: str | None = super().get_redirect_target(resp)
        return found

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Called before each redirected request."""
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call] # theirs
        former, url = str(response.request.url), str(prepared_request.url)
        # http to https of one host and port is no other place.
        is_elsewhere = self.should_strip_auth(former, url)  # type: ignore[no-untyped-call] # theirs
        for name in self._own_headers:
            if is_elsewhere:
                prepared_request.headers.pop(name, None)
            elif name in response.request.headers:  # requests drops each Cookie
                prepared_request.headers[name] = response.request.headers[name]


class Requester:
    """Sends messages to URLs over one session.

    Args:
        is_get: GET with the message in the URL, in the place of ``%s``; else POST.
        headers: sent with each request; they go before the usual ones. After a redirect to another
            host, port or scheme only those that describe the body are sent: the others may be
            credentials.
        connections: kept open to one host.
        timeouts: seconds for the connection, and for the whole answer.
        context: for ``https``; None: the certificate authorities of ``requests``.

    Threads: any; nothing in the session changes after it was made. Proxies of the environment and
    ``~/.netrc`` are ignored, as in the original.
    """

    def __init__(
        self,
        *,
        is_get: bool,
        headers: Mapping[str, str],
        connections: int,
        timeouts: tuple[float, float],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._is_get = is_get
        self._timeouts = timeouts
        self._session = session = _Session(headers)
        session.trust_env = False
        session.max_redirects = _MAX_REDIRECTS
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            session.mount(scheme, TotalTimeoutAdapter(context, connections))
        session.verify = context is None or context.verify_mode is not ssl.CERT_NONE
        session.headers.clear()
        session.headers.update({
            "User-Agent": f"nsq_to_http v{__version__}", "Accept-Encoding": ACCEPT_ENCODING,
            **headers,
        })

    def send(self, url: str, body: bytes) -> None:
        """Send one message.

        Raises:
            RequestFailed: no answer, or a status other than 200 to 299.
        """
        try:
            if self._is_get:
                response = self._session.get(
                    url.replace("%s", quote_plus(body)), timeout=self._timeouts, stream=True)
            else:
                response = self._session.post(
                    url, data=body, timeout=self._timeouts, stream=True)
            read_body(response, _MAX_ANSWER)
        except (TooLarge, UnexpectedEncoding):
            pass  # it has answered; the body is not needed
        except (requests.exceptions.RequestException, ValueError) as exc:
            # ValueError: of a Location that is no URL or not UTF-8.
            raise RequestFailed(f"{type(exc).__name__}: {exc}") from exc
        if not 200 <= response.status_code < 300:
            raise RequestFailed(f"HTTP {response.status_code}", response.status_code)

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()


class Sender:
    """The handler: sends a message to its destination.

    Args:
        mode: a name of STRATEGIES, or "all".
        sample: fraction to send.
        rules: those of ``--on-status``.

    Threads: any.
    """

    def __init__(
        self, urls: Sequence[str], mode: str, requester: Requester, times: RequestTimes,
        sample: float = 1.0, rules: Sequence[Rule] = (),
    ) -> None:
        self._urls = list(urls)
        self._requester = requester
        self._times = times
        self._sample = sample
        self._rules = rules
        self._random = random.Random()
        self._lock = threading.Lock()
        self._strategy: RoundRobin | None = None  # None: all; guarded by _lock
        if mode != ALL:
            self._strategy = STRATEGIES[mode](urls, self._random)

    def handle(self, message: Message) -> None:
        """Send one message.

        Raises:
            Requeue: it did not arrive; with backoff when no destination accepted it.
            GiveUp: a destination rejected it, and a rule says that it is a dead letter.
        """
        if self._sample < 1.0 and self._random.random() >= self._sample:
            return
        with self._lock:
            order = (self._urls if self._strategy is None
                     else self._strategy.order(time.monotonic()))
        failures: list[RequestFailed] = []
        for number, url in enumerate(order):
            if number and not message.has_responded:
                message.touch()  # each attempt may take a whole request timeout
            failure = self._attempt(url, message)
            failures += [failure] if failure is not None else []
            if self._strategy is not None and (failure is None or failure.action != RETRY):
                break
        retries = [each for each in failures if each.action == RETRY]
        if retries and (self._strategy is None or len(retries) == len(order)):
            # With --mode=all some may have it already, and get it again.
            raise Requeue(backoff=len(retries) == len(order)) from retries[-1]
        for failure in failures:
            if failure.action == DEAD_LETTER:
                raise GiveUp(str(failure)) from failure

    def _attempt(self, url: str, message: Message) -> RequestFailed | None:
        began = time.monotonic()
        failure = None
        try:
            self._requester.send(url, message.body)
        except RequestFailed as exc:
            # The first rule that names the status; without one, or an answer: retry.
            action = next((rule.action for rule in self._rules
                           if rule.first <= exc.status <= rule.last), RETRY)
            failure = RequestFailed(f"{without_password(url)}: {exc}", exc.status, action)
            logger.error("%s: %s did not arrive: %s (%s)", without_password(url), message.id, exc,
                         action)
        now = time.monotonic()
        self._times.add(url, now - began)
        if self._strategy is not None:
            with self._lock:
                # A rejection of the message comes from a destination that works.
                self._strategy.report(
                    url, failure is None or failure.action != RETRY, now - began, now)
        return failure
