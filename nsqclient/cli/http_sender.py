"""``Sender``: the handler of nsq_to_http, which brings a message to one of its destinations."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from nsqclient import Message, NSQError, Requeue
from nsqclient.cli.http_requests import Failed, Requester
from nsqclient.cli.status_policy import Outcome, Rule, outcome_of
from nsqclient.cli.timings import Timings
from nsqclient.cli.url_choice import STRATEGIES, Strategy
from nsqclient.display import without_password

logger = logging.getLogger("nsqclient.cli")

#: The mode that sends every message to every URL.
ALL = "all"


class Sender:
    """The handler: brings a message to its destination.

    Args:
        mode: a name of STRATEGIES, or "all".
        sample: fraction to send.
        rules: what refusals mean.
        keep: keeps a message whose refusal means DEAD_LETTER; raises when it could not.

    Threads: any.
    """

    def __init__(
        self, urls: Sequence[str], mode: str, requester: Requester, timings: Timings,
        sample: float = 1.0, rules: Sequence[Rule] = (),
        keep: Callable[[Message], None] | None = None,
    ) -> None:
        self._urls = list(urls)
        self._requester = requester
        self._timings = timings
        self._sample = sample
        self._rules = rules
        self._keep = keep
        self._random = random.Random()
        self._lock = threading.Lock()
        self._strategy: Strategy | None = None  # None: all; guarded by _lock
        if mode != ALL:
            self._strategy = STRATEGIES[mode](urls, self._random)

    def handle(self, message: Message) -> None:
        """Send one message.

        Raises:
            Requeue: it did not arrive; with backoff when no destination took it.
        """
        if self._sample < 1.0 and self._random.random() >= self._sample:
            return
        with self._lock:
            order = (self._urls if self._strategy is None
                     else self._strategy.order(time.monotonic()))
        outcomes: list[Outcome] = []
        for number, url in enumerate(order):
            if number and not message.has_responded:
                message.touch()  # each try may take a whole request timeout
            outcomes.append(self._try(url, message))
            if self._strategy is not None and outcomes[-1] is not Outcome.RETRY:
                break
        if self._strategy is None or outcomes[-1] is Outcome.RETRY:
            failed = outcomes.count(Outcome.RETRY)
            if failed:
                # With --mode=all some may have it already: they get it again.
                raise Requeue(backoff=failed == len(order))
        if Outcome.DEAD_LETTER in outcomes:
            self._keep_refused(message)

    def _try(self, url: str, message: Message) -> Outcome:
        began = time.monotonic()
        outcome = Outcome.ARRIVED
        try:
            self._requester.send(url, message.body)
        except Failed as exc:
            outcome = outcome_of(exc.status, self._rules)
            logger.error("%s: %s did not arrive: %s (%s)", without_password(url), _shown(message),
                         exc, outcome.value)
        now = time.monotonic()
        self._timings.add(url, now - began)
        if self._strategy is not None:
            with self._lock:
                # A refusal that is about the message comes from a destination that works.
                self._strategy.report(url, outcome is not Outcome.RETRY, now - began, now)
        return outcome

    def _keep_refused(self, message: Message) -> None:
        assert self._keep is not None, "a rule that says so needs it"
        try:
            self._keep(message)
        except NSQError as exc:
            logger.error("%s cannot be kept: %s", _shown(message), exc)
            raise Requeue from exc


def _shown(message: Message) -> str:
    return message.id.decode("ascii", "replace")
