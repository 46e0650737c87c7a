"""``Asker``: asks many servers at once, with one deadline, and names those that failed.

A page does not wait for a server that hangs: a *progressive* round ends when the servers that
usually answer have done so. What the others answer later counts in a later round.

Servers that do not answer hold no thread that a good one needs. nsqlookupds, nsqds that answered
the last time, and all other nsqds have threads of their own; among nsqds, each nsqlookupd that
lists them gets an equal share of these, so one that lists thousands of silent addresses delays
only what it alone lists.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nsqclient.display import LONGEST_TEXT, printable, without_password
from nsqclient.errors import HTTPAnswerError, HTTPError, HTTPStatusError, NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DIRECT, DialQueue, Standing, standing_of
from nsqclient.runtime.workers import WorkerPool

logger = logging.getLogger("nsqclient.admin")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Servers asked at the same time, in each lane: a cluster has tens of them.
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
#: The reason of a failure of a server that was not asked: its share of the threads is in use.
_NOT_ASKED = "not asked yet: too many servers do not answer"


class Failure(NamedTuple):
    """A server that gave no answer, or a bad one."""

    kind: str  #: ``nsqd`` or ``nsqlookupd``
    address: str  #: as it is called
    reason: str
    asked: str = ""  #: where it was asked, when that is another address
    status: int = 0  #: of HTTP, when it answered and refused
    code: str = ""  #: its own word then
    is_waiting: bool = False  #: it was asked, and may still answer
    is_doubt: bool = False  #: it answered, and what it says or is said of it is doubtful

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
    #: The nsqlookupds that list an nsqd; none for one that was given by its address.
    sources: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """What tells servers apart: where it is asked."""
        return self.asked or self.address


class _Server:
    """What the rounds so far say about one server."""

    def __init__(self) -> None:
        self.tasks: set[_Task] = set()  # queued or under way
        self.took: float | None = None  # seconds of an answer; None: it has given none
        self.failure: Failure | None = None  # why it gave none the last time, when it was silent
        self.penalty_until = 0.0
        self.overdue: Failure | None = None  # a progressive round went on without it
        self.has_failed = False  # the last question ended without an answer

    @property
    def standing(self) -> Standing:
        """Whether it answered the last time."""
        is_doubtful = self.has_failed or self.overdue is not None or self.failure is not None
        return standing_of(self.took is not None, int(is_doubtful))

    @property
    def patience(self) -> float:
        if self.failure is not None:
            return _LITTLE_PATIENCE
        return _PATIENCE if self.took is None else max(_PATIENCE, 2 * self.took)


@dataclass(eq=False)
class _Task:
    """A question of one round."""

    question: Question[Any]
    outcomes: _Outcomes[Any, Any]
    key: Hashable
    lane: _Lane
    patience: float | None  # seconds from its start that a progressive round waits
    is_started: bool = False


class _Lane(NamedTuple):
    """Threads, and the questions that wait for one of them. Compared by identity."""

    pool: WorkerPool[_Task]
    queue: DialQueue[_Task]


class Asker:
    """Threads that ask. ``close()`` ends them; one that waits for an answer is not waited for.

    Args:
        timeout: seconds that a round of questions may take.

    Threads: any; several rounds may be under way.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._pools = [
            WorkerPool[_Task](f"nsq-admin-{name}", _THREADS, self._run)
            for name in ("ask-nsqlookupd", "ask", "ask-silent")
        ]
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}  # guarded by _lock, as the others
        self._rounds: set[_Outcomes[Any, Any]] = set()
        self._closing = False
        self._sources: tuple[str, ...] = ()
        self._lanes: list[_Lane] = []
        self.set_sources(())

    def set_sources(self, sources: Iterable[str]) -> None:
        """Note the nsqlookupds that list nsqds; each gets an equal share of the threads."""
        with self._lock:
            self._sources = tuple(dict.fromkeys(sources)) or (DIRECT,)
            # What is queued or under way now ends in the former ones.
            self._lanes = [
                _Lane(pool, DialQueue(_THREADS, self._sources)) for pool in self._pools
            ]

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
        for pool in self._pools:
            pool.start()
        outcomes = _Outcomes[K, T](len(questions))
        with self._lock:
            if self._closing:
                outcomes.abandon()
            self._rounds.add(outcomes)
        tasks: dict[K, _Task] = {}
        for key, question in questions.items():
            known = self._queue(question, even_if_slow, progressive, outcomes, key, tasks)
            if known is not None:
                outcomes.settle(key, failure=known)
        for lane in {task.lane for task in tasks.values()}:
            self._start_ready(lane)
        try:
            answers, failures = outcomes.wait()
        finally:
            with self._lock:
                self._rounds.discard(outcomes)
                if not progressive:
                    # Nobody waits for these any more, and an action must not come late.
                    for task in tasks.values():
                        self._discard(task)
        for key, task in tasks.items():
            if key not in answers and key not in failures:
                failures[key] = self._overdue(task, progressive)
        ordered = {key: answers[key] for key in questions if key in answers}
        return ordered, [failures[key] for key in questions if key in failures]

    def close(self) -> None:
        """End rounds and threads; a thread that waits for a server ends with its answer."""
        with self._lock:
            self._closing = True
            rounds = list(self._rounds)
        for outcomes in rounds:
            outcomes.abandon()
        deadline = Deadline(0.2)
        for pool in self._pools:
            pool.stop(deadline)

    def _queue(
        self, question: Question[T], even_if_slow: bool, progressive: bool,
        outcomes: _Outcomes[K, T], key: K, tasks: dict[K, _Task],
    ) -> Failure | None:
        """Queue a question as a task; return the failure where it is not asked now."""
        now = time.monotonic()
        with self._lock:
            if question.server not in self._servers and len(self._servers) >= _MOST_SERVERS:
                self._forget_one()
            server = self._servers.setdefault(question.server, _Server())
            known = None if now >= server.penalty_until else server.failure
            if progressive and known is None:
                known = server.overdue
            if known is not None and not even_if_slow:
                # The one that is remembered may be of another question to the same server.
                return known._replace(kind=question.kind, address=question.address,
                                      asked=question.asked)
            standing = server.standing
            sources: tuple[str, ...] = question.sources
            if question.kind == "nsqlookupd":
                lane, sources = self._lanes[0], (question.address,)
            else:
                lane = self._lanes[1 if standing is Standing.LOST else 2]
            patience = min(server.patience, self._timeout) if progressive else None
            task = tasks[key] = _Task(question, outcomes, key, lane, patience)
            server.tasks.add(task)
            # A good one that waits for its turn is worth waiting for.
            waits = patience is None or standing is Standing.LOST
            outcomes.expect(key, now + (self._timeout if patience is None or waits else patience))
            # One of a nsqlookupd that is asked no more may use the shares of all.
            known_sources = [each for each in sources if each in self._sources] or self._sources
            lane.queue.put(task, known_sources, standing)
            return None

    def _forget_one(self) -> None:
        """Addresses change with every container; forget the oldest. Needs _lock."""
        # One that answered is forgotten last: it would have to queue with the silent ones.
        silent = (name for name, server in self._servers.items() if server.took is None)
        forgotten = self._servers.pop(next(silent, None) or next(iter(self._servers)))
        for task in forgotten.tasks:
            if not task.is_started:
                task.lane.queue.discard(task)

    def _start_ready(self, lane: _Lane) -> None:
        """Hand to the threads what they may begin with."""
        started = []
        with self._lock:
            while (task := lane.queue.take(0.0)) is not None:
                task.is_started = True
                started.append(task)
        now = time.monotonic()
        for task in started:
            if task.patience is not None:
                task.outcomes.expect(task.key, now + task.patience)
            lane.pool.put(task)

    def _discard(self, task: _Task) -> None:
        """Do not ask it, when that has not begun. Needs _lock."""
        if not task.is_started:
            task.lane.queue.discard(task)
            server = self._servers.get(task.question.server)
            if server is not None:
                server.tasks.discard(task)

    def _overdue(self, task: _Task, progressive: bool) -> Failure:
        """A round goes on without an answer; return what it says of the server."""
        question = task.question
        late = Failure(question.kind, question.address, f"no answer within {self._timeout:g} s",
                       question.asked)
        with self._lock:
            # Forgotten meanwhile: nothing is to be remembered either.
            server = self._servers.get(question.server) or _Server()
            if not progressive:
                if not task.is_started:
                    late = late._replace(reason=_NOT_ASKED)
                self._note_silence(server, late)
                return late
            waiting = late._replace(reason=WAITING, is_waiting=True)
            if server.failure is not None:
                waiting = late._replace(reason=server.failure.reason)
            if task in server.tasks:  # else its answer came a moment ago, for the next round
                server.overdue = waiting
            return waiting

    def _run(self, task: _Task) -> None:
        with self._lock:
            if self._closing:
                return  # nobody waits for it, and it would open a connection that nobody closes
        question = task.question
        begun = time.monotonic()
        failure = value = None
        try:
            value = question.ask()
        except Exception as exc:
            if not isinstance(exc, NSQError):
                logger.exception("asking %s %s failed", question.kind, question.address)
            failure = _failure(question, exc)
        # First, so that a round that ends with this knows it, and waits for what begins now.
        self._finished(task, time.monotonic() - begun, failure)
        with self._lock:
            task.lane.queue.finish(task)
        self._start_ready(task.lane)
        if failure is None:
            task.outcomes.settle(task.key, answers=(value,))
        else:
            task.outcomes.settle(task.key, failure=failure)

    def _finished(self, task: _Task, seconds: float, failure: Failure | None) -> None:
        with self._lock:
            server = self._servers.get(task.question.server)
            if server is None:
                return
            server.tasks.discard(task)
            server.overdue = None
            server.has_failed = failure is not None and not failure.status
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
        self._deadlines: dict[K, float] = {}  # of those without an outcome
        self._last: K | None = None  # of these the one that is waited for longest
        self._waits_until: float | None = None  # and until when

    def expect(self, key: K, deadline: float) -> None:
        """Wait for one until a time on ``time.monotonic()``; called again: until another time."""
        with self._changed:
            if key in self._answers or key in self._failures:
                return
            self._deadlines[key] = deadline
            if self._waits_until is None or deadline > self._waits_until or key == self._last:
                self._changed.notify_all()

    def settle(
        self, key: K, *, answers: tuple[T, ...] = (), failure: Failure | None = None
    ) -> None:
        """Note an answer or a failure."""
        with self._changed:
            self._left -= 1
            self._deadlines.pop(key, None)
            for answer in answers:
                self._answers[key] = answer
            if failure is not None:
                self._failures[key] = failure
            if self._left <= 0 or key == self._last:
                self._changed.notify_all()

    def abandon(self) -> None:
        """Wait for no more answers."""
        with self._changed:
            self._left = 0
            self._changed.notify_all()

    def wait(self) -> tuple[dict[K, T], dict[K, Failure]]:
        """Wait until each has an outcome, or is past its deadline."""
        with self._changed:
            while self._left > 0 and self._deadlines:
                # The latest of several with one deadline: they end in their order, mostly.
                self._last = max(reversed(self._deadlines), key=self._deadlines.__getitem__)
                self._waits_until = self._deadlines[self._last]
                remaining = self._waits_until - time.monotonic()
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
