"""``nsqclient nsq_to_http``: send the messages of a topic to URLs, with the flags of the original.

If a destination fails, the others are tried at once. When all have failed, the message is requeued
and the consumer backs off. ``--on-status`` changes the meaning of single answers.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlsplit

import requests
import urllib3.exceptions
from requests.adapters import HTTPAdapter

from nsqclient import Config, GiveUp, Message, Requeue
from nsqclient.cli.consumers import Consumers, make_dead_letters
from nsqclient.cli.flags import (
    INT, STRING, STRINGS, FlagError, Kind, Parsed, choice, limited,
)
from nsqclient.cli.load_balancing import ALL, STRATEGIES, RequestTimes, RoundRobin
from nsqclient.cli.tool_flags import (
    COUNT, ToolFlags, add_http_timeouts, add_http_tls_flags, read_consumer_config, read_http_tls,
)
from nsqclient.display import masked_address, without_password
from nsqclient.http.adapter import TLSAdapter, TooLarge, read_body
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.version import __version__

logger: logging.Logger = logging.getLogger("nsqclient.cli")

#: Bytes read of an answer, so that its connection can be used again.
_MAX_ANSWER = 1024 * 1024


RETRY, DROP, DEAD_LETTER = ACTIONS = ("retry", "drop", "dead-letter")


class Rule(NamedTuple):
    """The action for a response with a status from ``first`` to ``last``."""

    first: int
    last: int
    action: str


_STATUS = re.compile(r"([3-5])xx|([3-5]\d\d)(?:-([3-5]\d\d))?")


def parse_rule(text: str) -> Rule:
    """Read ``404=drop``, ``4xx=dead-letter`` or ``500-503=retry``. Raises ValueError."""
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
    """The destination did not accept the message. ``status`` is 0 without an answer."""

    def __init__(self, reason: str, status: int = 0, action: str = RETRY) -> None:
        super().__init__(reason)
        self.status = status
        self.action = action


class Requester:
    """Sends messages to URLs over one session. Redirects are not followed.

    Args:
        is_get: GET with the message in the URL, in the place of ``%s``; otherwise POST.
        headers: sent with each request.
        timeouts: seconds for the connection, and for the answer.
        tls: ``tls_*`` options for https; None: the certificate authorities of ``requests``.

    Threads: any. Proxies of the environment and ``~/.netrc`` are ignored, as in the original.
    """

    def __init__(
        self,
        *,
        is_get: bool,
        headers: Mapping[str, str],
        connections: int,
        timeouts: tuple[float, float],
        tls: Config | None = None,
    ) -> None:
        self._is_get = is_get
        self._timeouts = timeouts
        self._session = session = requests.Session()
        session.trust_env = False
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=connections))
        if tls is not None:
            session.mount("https://", TLSAdapter(tls, connections))
        session.headers.clear()
        session.headers.update({
            "User-Agent": f"nsq_to_http v{__version__}", "Accept-Encoding": "gzip",
            **headers,
        })

    def send(self, url: str, body: bytes) -> None:
        """Send one message. Raises RequestFailed if no status from 200 to 299 comes."""
        method, data = "POST", body
        if self._is_get:
            method, url, data = "GET", url.replace("%s", quote_plus(body)), b""
        try:
            response = self._session.request(
                method, url, data=data, timeout=self._timeouts, stream=True,
                allow_redirects=False)
            read_body(response, _MAX_ANSWER, Deadline(sum(self._timeouts)))
        except TooLarge:
            pass  # it has answered; the body is not needed
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as exc:
            raise RequestFailed(f"{type(exc).__name__}: {exc}") from exc
        if not 200 <= response.status_code < 300:
            raise RequestFailed(f"HTTP {response.status_code}", response.status_code)

    def close(self) -> None:
        self._session.close()


class Sender:
    """The handler: sends a message to its destination. Threads: any.

    Args:
        mode: a name of STRATEGIES, or "all".
        sample: fraction to send.
        rules: the rules of ``--on-status``.
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
            Requeue: it did not arrive; with backoff if no destination accepted it.
            GiveUp: a destination rejected it, and a rule makes it a dead letter.
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


PROGRAM = "nsq_to_http"


def _parse_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise FlagError(f"{masked_address(url)!r} is not an http:// or https:// URL")
    return url


def _parse_get(url: str) -> str:
    if url.count("%s") != 1:
        raise FlagError(
            f"{masked_address(url)!r}: it needs one %s in the place of the message")
    return _parse_url(url)


def parse_header(text: str) -> tuple[str, str]:
    key, _, value = (part.strip() for part in text.partition(":"))
    if not key or not value:
        raise FlagError(f"{text!r}: write it as 'Key: Value'")
    if not (key + value).isprintable() or not (key + value).isascii() or " " in key:
        raise FlagError(f"{text!r} has characters that are invalid in a header")
    return key, value


FRACTION = limited(
    Kind("float", float), lambda value: 0.0 <= value <= 1.0, "must be between 0.0 and 1.0")
AT_LEAST_1 = limited(INT, lambda value: value >= 1, "must be at least 1")
RULES = Kind("status=action", parse_rule, is_list=True)
URLS = STRINGS._replace(parse=_parse_url, separator=" ")
GET_URLS = URLS._replace(parse=_parse_get)
HEADERS = STRINGS._replace(parse=parse_header, separator="\n", joint=": ")
MODE = choice(*STRATEGIES, ALL, name="string")

_SUMMARY = """\
Sends each message of a topic to one of several URLs, as the body of a POST or in the URL of a
GET. A response with a status from 200 to 299 means success. If no URL succeeds, the message is
requeued and sent again later. A message may arrive twice, but is not lost."""

_EXAMPLES = [
    ("POST each message to one of two hosts",
     "nsqclient nsq_to_http --lookupd-http-address=lookup:4161 \\\n"
     "      --topic=orders --post=http://a/hook --post=http://b/hook"),
    ("send GET requests with a header",
     "nsqclient nsq_to_http --nsqd-tcp-address=127.0.0.1:4150 \\\n"
     "      --topic=orders --get='http://a/hit?m=%s' --header='X-Token: abc'"),
    ("publish messages that a URL rejects to another topic",
     "nsqclient nsq_to_http ... --on-status=429=retry \\\n"
     "      --on-status=4xx=dead-letter --dead-letter-topic=orders.rejected"),
]


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("Messages")
    flags.add_topic(channel="nsq_to_http")
    flags.add("sample", FRACTION, 1.0, "fraction of messages to send; the rest are finished only")
    flags.group("Destination (--post or --get is required)")
    flags.add("post", URLS, (), "URL to POST messages to; may be repeated")
    flags.add("get", GET_URLS, (), "URL to GET, with %s in place of the message; may be repeated")
    flags.require("get", "post")
    flags.add("mode", MODE, "hostpool", "how to choose among several URLs: hostpool (working URLs"
              " in turn),\n      round-robin (all URLs in turn), epsilon-greedy (mostly URLs that"
              " respond fast),\n      or all (every URL)")
    flags.add("content-type", STRING, "application/octet-stream", "Content-Type of POST requests")
    flags.add("header", HEADERS, (), "header of each request, \"Key: Value\"; may be repeated")
    add_http_timeouts(flags, request=20.0)
    add_http_tls_flags(flags)
    flags.group("Failures")
    flags.add("on-status", RULES, (), "action (retry, drop or dead-letter) after a response with"
              " this status\n      (404, 4xx, 400-428); the first matching rule applies, and any"
              " other status\n      is retried; may be repeated")
    flags.add_dead_letters("topic for messages that --on-status selects or that are given up"
                           "\n      after --consumer-opt=max_attempts,N")
    flags.group("Speed")
    flags.add("n", AT_LEAST_1, 100, "number of concurrent requests")
    flags.add_in_flight()
    flags.add("status-every", COUNT, 250, "number of requests after which to log response times; 0:"
              " never")
    flags.add_sources()
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    config = read_consumer_config(values, PROGRAM)  # first: a bad one is status 2
    if "content-type" in parsed.given and not values["post"]:
        raise FlagError("--content-type only used with --post")
    _check_dead_letters(values, config)
    urls = list(dict.fromkeys(values["get"] or values["post"]))
    tls = read_http_tls(values)
    requester = Requester(
        is_get=bool(values["get"]), headers=_headers(values), connections=values["n"],
        timeouts=(values["http-client-connect-timeout"], values["http-client-request-timeout"]),
        tls=Config(**tls) if tls else None,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(requester.close)
        signals = stack.enter_context(Signals(Second.EXIT))
        options: dict[str, Any] = {}
        if values["dead-letter-topic"]:
            options["on_giving_up"] = make_dead_letters(values, config, stack)
        sender = Sender(
            urls, values["mode"], requester, RequestTimes(urls, values["status-every"]),
            values["sample"], values["on-status"])
        consumers = Consumers(values, config, signals)
        consumers.add(
            values["topic"], values["channel"], sender.handle, workers=values["n"], **options)
        consumers.run()
    return 0


def _check_dead_letters(values: dict[str, Any], config: Config) -> None:
    wanted = any(rule.action == DEAD_LETTER for rule in values["on-status"])
    if wanted and not values["dead-letter-topic"]:
        raise FlagError("--on-status=...=dead-letter needs --dead-letter-topic")
    if values["dead-letter-topic"] and not wanted and config.max_attempts == 0:
        raise FlagError(
            "--dead-letter-topic needs --on-status=STATUS=dead-letter or"
            " --consumer-opt=max_attempts,N")


def _headers(values: dict[str, Any]) -> dict[str, str]:
    headers = {} if values["get"] else {"Content-Type": values["content-type"]}
    for key, value in values["header"]:
        # Names ignore case, so a later header replaces an earlier one.
        headers = {name: old for name, old in headers.items() if name.lower() != key.lower()}
        headers[key] = value
    return headers
