"""``Asker``: asks many servers at once, with one deadline, and names those that failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
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


class Failure(NamedTuple):
    """A server that gave no answer, or a bad one."""

    kind: str  #: ``nsqd`` or ``nsqlookupd``
    address: str  #: as it is called
    reason: str
    asked: str = ""  #: where it was asked, when that is another address
    status: int = 0  #: of HTTP, when it answered and refused
    code: str = ""  #: its own word then

    def text(self) -> str:
        """One line for people."""
        where = f" (asked at {self.asked})" if self.asked and self.asked != self.address else ""
        return without_password(f"{self.kind} {self.address}{where}: {self.reason}")


class Question(NamedTuple, Generic[T]):
    """What to ask one server; ``ask`` raises an NSQError when it fails."""

    kind: str
    address: str
    ask: Callable[[], T]
    asked: str = ""


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
        self._penalties: dict[str, tuple[float, Failure]] = {}  # guarded by _lock
        self._rounds: set[_Outcomes[Any, Any]] = set()  # guarded by _lock
        self._closing = False  # guarded by _lock

    def ask(
        self, questions: Mapping[K, Question[T]], *, even_if_slow: bool = False
    ) -> tuple[dict[K, T], list[Failure]]:
        """Ask all; return the answers, in the order of the questions, and the failures.

        Args:
            even_if_slow: also ask a server that gave no answer a moment ago: for actions.

        Blocks: up to the timeout.
        """
        self._pool.start()
        outcomes = _Outcomes[K, T](len(questions))
        with self._lock:
            if self._closing:
                outcomes.abandon()
            self._rounds.add(outcomes)
        for key, question in questions.items():
            known = None if even_if_slow else self._penalty(question)
            if known is not None:
                outcomes.settle(key, failure=known)
            else:
                self._pool.put(_task(outcomes, key, question))
        try:
            answers, failures = outcomes.wait(questions, self._timeout)
        finally:
            with self._lock:
                self._rounds.discard(outcomes)
        for failure in failures.values():
            self._note(failure)
        return answers, list(failures.values())

    def close(self) -> None:
        """End rounds and threads; a thread that waits for a server ends with its answer."""
        with self._lock:
            self._closing = True
            rounds = list(self._rounds)
        for outcomes in rounds:
            outcomes.abandon()
        self._pool.stop(Deadline(0.2))

    def _penalty(self, question: Question[T]) -> Failure | None:
        with self._lock:
            until, failure = self._penalties.get(question.asked or question.address, (0.0, None))
            return failure if time.monotonic() < until else None

    def _note(self, failure: Failure) -> None:
        # Status 0 without a quick refusal: it took its time.
        if failure.status or not ("within" in failure.reason or "in time" in failure.reason):
            return
        with self._lock:
            key = failure.asked or failure.address
            if time.monotonic() >= self._penalties.get(key, (0.0, None))[0]:
                self._penalties[key] = (time.monotonic() + _PENALTY, failure)


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

    def wait(
        self, questions: Mapping[K, Question[T]], timeout: float
    ) -> tuple[dict[K, T], dict[K, Failure]]:
        with self._changed:
            self._changed.wait_for(lambda: self._left <= 0, timeout)
            answers, failures = dict(self._answers), dict(self._failures)
        for key, question in questions.items():
            if key not in answers and key not in failures:
                failures[key] = Failure(
                    question.kind, question.address, f"no answer within {timeout:g} s",
                    question.asked,
                )
        ordered = {key: answers[key] for key in questions if key in answers}
        return ordered, {key: failures[key] for key in questions if key in failures}


def _task(outcomes: _Outcomes[K, T], key: K, question: Question[T]) -> Callable[[], None]:
    def run() -> None:
        try:
            outcomes.settle(key, answers=(question.ask(),))
        except NSQError as exc:
            outcomes.settle(key, failure=_failure(question, exc))
        except Exception as exc:
            logger.exception("asking %s %s failed", question.kind, question.address)
            outcomes.settle(key, failure=_failure(question, exc))

    return run


def _failure(question: Question[T], exc: Exception) -> Failure:
    reason = exc.reason if isinstance(exc, HTTPError) else str(exc) or type(exc).__name__
    if isinstance(exc, HTTPAnswerError):
        reason = f"unusable answer: {reason.removeprefix('not a usable answer: ')}"
    reason = without_password(printable(reason, LONGEST_TEXT))
    status, code = (exc.status, exc.message) if isinstance(exc, HTTPStatusError) else (0, "")
    return Failure(question.kind, question.address, reason, question.asked, status, code)
