"""``Asker``: asks many servers at once, with one deadline, and names those that failed.

A page does not wait for a server that hangs: a *progressive* round ends when the servers that
usually answer have done so. What the others answer later counts in a later round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nsqclient.display import LONGEST_TEXT, printable, without_password
from nsqclient.errors import HTTPAnswerError, HTTPError, HTTPStatusError, NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool

logger = logging.getLogger("nsqclient.admin")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Servers asked at the same time: a cluster has tens of them.
_THREADS = 16
#: Seconds for which a server that gave no answer in time is not asked again: each round would wait
#: for it. One that refuses costs nothing and is asked every time.
_PENALTY = 8.0
#: Seconds that a progressive round waits: for a server of which nothing is known, and for one that
#: gave no answer the last time. One that answers is waited for twice as long as it took.
_PATIENCE = 1.0
_LITTLE_PATIENCE = 0.25
#: Servers of which something is remembered.
_MOST_SERVERS = 2000

#: The reason of a failure that may still become an answer.
WAITING = "waiting for its answer"


class Failure(NamedTuple):
    """A server that gave no answer, or a bad one."""

    kind: str  #: ``nsqd`` or ``nsqlookupd``
    address: str  #: as it is called
    reason: str
    asked: str = ""  #: where it was asked, when that is another address
    status: int = 0  #: of HTTP, when it answered and refused
    code: str = ""  #: its own word then
    is_waiting: bool = False  #: it was asked, and may still answer

    def text(self) -> str:
        """One line for people."""
        where = f" (asked at {self.asked})" if self.asked and self.asked != self.address else ""
        return without_password(f"{self.kind} {self.address}{where}: {self.reason}")


@dataclass(frozen=True)
class Question(Generic[T]):
    """What to ask one server; ``ask`` raises an NSQError when it fails."""

    kind: str
    address: str
    ask: Callable[[], T]
    asked: str = ""

    @property
    def server(self) -> str:
        """What tells servers apart: where it is asked."""
        return self.asked or self.address


class _Server:
    """What the rounds so far say about one server."""

    def __init__(self) -> None:
        self.running = 0  # questions that are queued or under way
        self.took: float | None = None  # seconds of an answer; None: it has given none
        self.failure: Failure | None = None  # why it gave none the last time, when it was silent
        self.penalty_until = 0.0
        self.overdue: Failure | None = None  # a progressive round went on without it

    @property
    def patience(self) -> float:
        if self.failure is not None:
            return _LITTLE_PATIENCE
        return _PATIENCE if self.took is None else max(_PATIENCE, 2 * self.took)


class Asker:
    """Threads that ask. ``close()`` ends them; one that waits for an answer is not waited for.

    Args:
        timeout: seconds that a round of questions may take.

    Threads: any; several rounds may be under way.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._pool: WorkerPool[Callable[[], None]] = WorkerPool(
            "nsq-admin-ask", _THREADS, lambda task: task()
        )
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}  # guarded by _lock, as the others
        self._rounds: set[_Outcomes[Any, Any]] = set()
        self._closing = False

    def ask(
        self,
        questions: Mapping[K, Question[T]],
        *,
        even_if_slow: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[K, T], list[Failure]]:
        """Ask all; return the answers, in the order of the questions, and the failures.

        Args:
            even_if_slow: also ask a server that gave no answer a moment ago: for actions.
            progressive: do not wait for servers that take longer than they use to, or are silent;
                they are among the failures meanwhile.

        Blocks: up to the timeout.
        """
        self._pool.start()
        outcomes = _Outcomes[K, T](len(questions))
        with self._lock:
            if self._closing:
                outcomes.abandon()
            self._rounds.add(outcomes)
        begun = time.monotonic()
        deadlines = {}
        for key, question in questions.items():
            patience, known = self._begin(question, even_if_slow, progressive)
            deadlines[key] = begun + patience
            if known is not None:
                outcomes.settle(key, failure=known)
            else:
                self._pool.put(self._task(outcomes, key, question))
        try:
            answers, failures = outcomes.wait(deadlines)
        finally:
            with self._lock:
                self._rounds.discard(outcomes)
        for key, question in questions.items():
            if key not in answers and key not in failures:
                failures[key] = self._overdue(question, progressive)
        ordered = {key: answers[key] for key in questions if key in answers}
        return ordered, [failures[key] for key in questions if key in failures]

    def close(self) -> None:
        """End rounds and threads; a thread that waits for a server ends with its answer."""
        with self._lock:
            self._closing = True
            rounds = list(self._rounds)
        for outcomes in rounds:
            outcomes.abandon()
        self._pool.stop(Deadline(0.2))

    def _begin(
        self, question: Question[Any], even_if_slow: bool, progressive: bool
    ) -> tuple[float, Failure | None]:
        """Return how long to wait for the answer, or the failure where it is not asked now."""
        with self._lock:
            if question.server not in self._servers and len(self._servers) >= _MOST_SERVERS:
                # Addresses change with every container; what is known of the oldest is forgotten.
                del self._servers[next(iter(self._servers))]
            server = self._servers.setdefault(question.server, _Server())
            known = None if time.monotonic() >= server.penalty_until else server.failure
            if progressive and known is None:
                known = server.overdue
            if known is not None and not even_if_slow:
                # The one that is remembered may be of another question to the same server.
                return 0.0, known._replace(kind=question.kind, address=question.address,
                                           asked=question.asked)
            server.running += 1
            return min(server.patience, self._timeout) if progressive else self._timeout, None

    def _overdue(self, question: Question[Any], progressive: bool) -> Failure:
        """A round goes on without an answer; return what it says of the server."""
        late = Failure(question.kind, question.address, f"no answer within {self._timeout:g} s",
                       question.asked)
        with self._lock:
            server = self._servers.setdefault(question.server, _Server())
            if not progressive:
                self._note_silence(server, late)
                return late
            waiting = late._replace(reason=WAITING, is_waiting=True)
            if server.failure is not None:
                waiting = late._replace(reason=server.failure.reason)
            if server.running:  # else its answer came a moment ago, for the next round
                server.overdue = waiting
            return waiting

    def _task(
        self, outcomes: _Outcomes[K, T], key: K, question: Question[T]
    ) -> Callable[[], None]:
        def run() -> None:
            with self._lock:
                if self._closing:
                    return  # nobody waits for it, and it would open a connection that nobody closes
            begun = time.monotonic()
            failure = None
            try:
                value = question.ask()
            except Exception as exc:
                if not isinstance(exc, NSQError):
                    logger.exception("asking %s %s failed", question.kind, question.address)
                failure = _failure(question, exc)
            # First, so that a round that ends with this knows it.
            self._finished(question, time.monotonic() - begun, failure)
            if failure is None:
                outcomes.settle(key, answers=(value,))
            else:
                outcomes.settle(key, failure=failure)

        return run

    def _finished(
        self, question: Question[Any], seconds: float, failure: Failure | None
    ) -> None:
        with self._lock:
            server = self._servers.get(question.server)
            if server is None:
                return
            server.running = max(0, server.running - 1)
            server.overdue = None
            if failure is None:
                server.took = max(seconds, 0.8 * (server.took or 0.0))
                server.failure = None
                server.penalty_until = 0.0
                return
            # Status 0 without a quick refusal: it took its time.
            if not failure.status and (
                "within" in failure.reason or "in time" in failure.reason
            ):
                self._note_silence(server, failure)
            else:
                server.failure = None

    def _note_silence(self, server: _Server, failure: Failure) -> None:
        """Spare a server for a while. Needs _lock."""
        server.failure = failure
        if time.monotonic() >= server.penalty_until:
            server.penalty_until = time.monotonic() + _PENALTY


class _Outcomes(Generic[K, T]):
    """What came back of one round so far."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._changed = threading.Condition()
        self._answers: dict[K, T] = {}  # guarded by _changed, as the others
        self._failures: dict[K, Failure] = {}

    def settle(
        self, key: K, *, answers: tuple[T, ...] = (), failure: Failure | None = None
    ) -> None:
        with self._changed:
            self._left -= 1
            for answer in answers:
                self._answers[key] = answer
            if failure is not None:
                self._failures[key] = failure
            self._changed.notify_all()

    def abandon(self) -> None:
        """Wait for no more answers."""
        with self._changed:
            self._left = 0
            self._changed.notify_all()

    def wait(self, deadlines: Mapping[K, float]) -> tuple[dict[K, T], dict[K, Failure]]:
        """Wait until each has an outcome, or is past its deadline on ``time.monotonic()``."""
        by_deadline = sorted(deadlines, key=lambda key: deadlines[key])
        with self._changed:
            while self._left > 0:
                while by_deadline[-1] in self._answers or by_deadline[-1] in self._failures:
                    by_deadline.pop()
                remaining = deadlines[by_deadline[-1]] - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            return dict(self._answers), dict(self._failures)


def _failure(question: Question[T], exc: Exception) -> Failure:
    reason = exc.reason if isinstance(exc, HTTPError) else str(exc) or type(exc).__name__
    if isinstance(exc, HTTPAnswerError):
        reason = f"unusable answer: {reason.removeprefix('not a usable answer: ')}"
    reason = without_password(printable(reason, LONGEST_TEXT))
    status, code = (exc.status, exc.message) if isinstance(exc, HTTPStatusError) else (0, "")
    return Failure(question.kind, question.address, reason, question.asked, status, code)
