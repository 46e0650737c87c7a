"""``Sender``: the handler of nsq_to_http, which sends a message to one of its URLs.

``Requester`` makes a message an HTTP request, and the rules of ``--on-status`` say what a rejection
means.
"""

from __future__ import annotations

import enum
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
from nsqclient.cli.load_balancing import ALL, STRATEGIES, RequestTimes, Strategy
from nsqclient.http.limits import (
    ACCEPT_ENCODING, TotalTimeoutAdapter, TooLarge, UnexpectedEncoding, read_body,
)
from nsqclient.sanitize import without_password
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.cli")

_MAX_REDIRECTS = 10
#: Redirects that keep the method and the body.
_KEEPS_BODY = (307, 308)
#: The most that is read of an answer, in bytes, so that its connection can be used again.
_MAX_ANSWER = 1024 * 1024
#: Headers that are sent to every host, in small letters.
_OF_THE_BODY = frozenset(["content-type", "content-encoding", "content-language"])


class SendOutcome(enum.Enum):
    """The outcome of one attempt to send a message."""

    ARRIVED = "arrived"
    RETRY = "retry"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class Rule(NamedTuple):
    """Statuses from ``first`` to ``last`` have an outcome."""

    first: int
    last: int
    outcome: SendOutcome


_STATUS = re.compile(r"([3-5])xx|([3-5]\d\d)(?:-([3-5]\d\d))?")
_ACTIONS = [outcome.value for outcome in SendOutcome if outcome is not SendOutcome.ARRIVED]


def parse_rule(text: str) -> Rule:
    """Read ``404=drop``, ``4xx=dead-letter`` or ``500-503=retry``.

    Raises:
        ValueError: it is no such rule.
    """
    status, _, action = text.partition("=")
    found = _STATUS.fullmatch(status)
    if found is None or action not in _ACTIONS:
        raise ValueError(
            "write STATUS=ACTION: a status is 404, 4xx or 400-428 (300 to 599), an action"
            f" {', '.join(_ACTIONS)}")
    group, first, last = found.groups()
    if group is not None:
        return Rule(int(group) * 100, int(group) * 100 + 99, SendOutcome(action))
    rule = Rule(int(first), int(last or first), SendOutcome(action))
    if rule.last < rule.first:
        raise ValueError(f"{status} is an empty range")
    return rule


def outcome_of(status: int | None, rules: Sequence[Rule]) -> SendOutcome:
    """The outcome of the first rule that names a status; without one, or an answer: retry."""
    if status is not None:
        for rule in rules:
            if rule.first <= status <= rule.last:
                return rule.outcome
    return SendOutcome.RETRY


class RequestFailed(Exception):
    """The destination did not accept the message; the text is the reason.

    ``status`` is that of its answer, None where none came.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


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
        rules: the outcomes of ``--on-status``.

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
        self._strategy: Strategy | None = None  # None: all; guarded by _lock
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
        outcomes: list[SendOutcome] = []
        failures: dict[SendOutcome, RequestFailed | None] = {}
        for number, url in enumerate(order):
            if number and not message.has_responded:
                message.touch()  # each attempt may take a whole request timeout
            outcome, failure = self._attempt(url, message)
            outcomes.append(outcome)
            failures[outcome] = failure
            if self._strategy is not None and outcome is not SendOutcome.RETRY:
                break
        if self._strategy is None or outcomes[-1] is SendOutcome.RETRY:
            failed = outcomes.count(SendOutcome.RETRY)
            if failed:
                # With --mode=all some may have it already, and get it again.
                raise Requeue(backoff=failed == len(order)) from failures[SendOutcome.RETRY]
        if SendOutcome.DEAD_LETTER in outcomes:
            failure = failures[SendOutcome.DEAD_LETTER]
            raise GiveUp(str(failure)) from failure

    def _attempt(self, url: str, message: Message) -> tuple[SendOutcome, RequestFailed | None]:
        began = time.monotonic()
        outcome, failure = SendOutcome.ARRIVED, None
        try:
            self._requester.send(url, message.body)
        except RequestFailed as exc:
            outcome = outcome_of(exc.status, self._rules)
            failure = RequestFailed(f"{without_password(url)}: {exc}", exc.status)
            logger.error("%s: %s did not arrive: %s (%s)", without_password(url), _shown(message),
                         exc, outcome.value)
        now = time.monotonic()
        self._times.add(url, now - began)
        if self._strategy is not None:
            with self._lock:
                # A rejection of the message comes from a destination that works.
                self._strategy.report(url, outcome is not SendOutcome.RETRY, now - began, now)
        return outcome, failure


def _shown(message: Message) -> str:
    return str(message.id)
