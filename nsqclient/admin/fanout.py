"""``FanOut``: sends requests to many servers at once, with one deadline, and lists the failures.

A page does not wait for a server that hangs: a *progressive* round ends when the servers that
usually answer have done so. An answer that arrives later counts in a later round.

Servers that do not answer occupy no thread that a responsive server needs. nsqlookupds, nsqds that
answered the last time, and all other nsqds have separate threads. Among nsqds, each nsqlookupd that
lists them gets an equal share of the threads, so an nsqlookupd that lists thousands of silent
addresses delays only what it alone lists.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nsqclient.errors import NSQHTTPResponseError, NSQHTTPError, NSQHTTPStatusError, NSQError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.dial_queue import DIRECT, DialQueue, Standing, standing_of
from nsqclient.runtime.workers import WorkerPool
from nsqclient.sanitize import LONGEST_TEXT, printable, without_password

logger = logging.getLogger("nsqclient.admin")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Requests under way at the same time, in each lane: a cluster has tens of servers.
_THREADS = 16
#: Seconds for which a server that did not answer in time gets no request: each round would wait
#: for it. A server that rejects a request costs nothing and gets one in every round.
_PENALTY = 8.0
#: Seconds that a progressive round waits: for a server without any history, and for a server that
#: did not answer the last time. A server that answered gets twice the time that its answer took.
_WAIT = 1.0
_SHORT_WAIT = 0.25
#: Servers whose history is kept.
_MOST_SERVERS = 2000

#: The reason of a failure that may still become an answer.
WAITING = "waiting for its answer"
#: The reason of a failure of a server that got no request: its share of the threads is in use.
_NOT_SENT = "no request yet: too many servers do not answer"


class Failure(NamedTuple):
    """A server that did not answer, or whose answer is unusable."""

    kind: str  #: ``nsqd`` or ``nsqlookupd``
    address: str  #: its name on the page
    reason: str
    asked: str = ""  #: the address that was requested, when that is another one
    status: int = 0  #: of HTTP, when it rejected the request
    code: str = ""  #: its error code then
    is_waiting: bool = False  #: the request is under way, and may still be answered
    is_doubt: bool = False  #: it answered, and its answer or a claim about it is doubtful
    since: float = 0.0  #: when this was seen first, in seconds since the epoch; 0: not known

    def text(self) -> str:
        """One line for people."""
        where = f" (asked at {self.asked})" if self.asked and self.asked != self.address else ""
        return without_password(f"{self.kind} {self.address}{where}: {self.reason}")


class UpstreamError(NSQError):
    """Every server that was requested failed; ``failures`` has the reasons."""

    def __init__(self, what: str, failures: Sequence[Failure]) -> None:
        super().__init__(
            f"failed to query any {what}: " + "; ".join(each.text() for each in failures)
        )
        self.failures = tuple(failures)


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request to one server; ``call`` raises an NSQError when it fails."""

    kind: str
    address: str
    call: Callable[[], T]
    asked: str = ""
    #: The nsqlookupds that list an nsqd; none for an nsqd that was given by its address.
    sources: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The identity of the server: the address that is requested."""
        return self.asked or self.address


class _Server:
    """The history of one server."""

    def __init__(self) -> None:
        self.tasks: set[_Task] = set()  # queued or under way
        self.took: float | None = None  # seconds of its answers; None: there was none
        self.failure: Failure | None = None  # of the last request, when it was not answered
        self.penalty_until = 0.0
        self.overdue: Failure | None = None  # a progressive round ended without its answer
        self.has_failed = False  # the last request ended without an answer

    @property
    def standing(self) -> Standing:
        """Whether it answered the last time."""
        is_doubtful = self.has_failed or self.overdue is not None or self.failure is not None
        return standing_of(self.took is not None, int(is_doubtful))

    @property
    def max_wait(self) -> float:
        if self.failure is not None:
            return _SHORT_WAIT
        return _WAIT if self.took is None else max(_WAIT, 2 * self.took)


@dataclass(eq=False)
class _Task:
    """A request in one round."""

    request: Request[Any]
    outcomes: _Outcomes[Any, Any]
    key: Hashable
    lane: _Lane
    max_wait: float | None  # seconds from its start that a progressive round waits
    is_started: bool = False


class _Lane(NamedTuple):
    """Threads, and the requests that wait for a thread. Compared by identity."""

    pool: WorkerPool[_Task]
    queue: DialQueue[_Task]


class FanOut:
    """Threads that send requests. ``close()`` ends them and does not wait for answers.

    Args:
        timeout: seconds that a round may take.

    Threads: any; several rounds may be under way.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._pools = [
            WorkerPool[_Task](f"nsq-admin-{name}", _THREADS, self._run)
            for name in ("fanout-nsqlookupd", "fanout", "fanout-silent")
        ]
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}  # guarded by _lock, as the others
        self._rounds: set[_Outcomes[Any, Any]] = set()
        self._closing = False
        self._sources: tuple[str, ...] = ()
        self._lanes: list[_Lane] = []
        self.set_sources(())

    def set_sources(self, sources: Iterable[str]) -> None:
        """Set the nsqlookupds that list nsqds; each gets an equal share of the threads."""
        with self._lock:
            self._sources = tuple(dict.fromkeys(sources)) or (DIRECT,)
            # Requests that are queued or under way end in the former lanes.
            self._lanes = [
                _Lane(pool, DialQueue(_THREADS, self._sources)) for pool in self._pools
            ]

    def run(
        self,
        requests: Mapping[K, Request[T]],
        *,
        even_if_slow: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[K, T], list[Failure]]:
        """Send all requests; return the answers, in the order of the requests, and the failures.

        Args:
            even_if_slow: include servers that did not answer a moment ago: for actions.
            progressive: do not wait for servers that are slower than usual, or silent; they are
                among the failures meanwhile.

        Blocks: up to the timeout.
        """
        for pool in self._pools:
            pool.start()
        outcomes = _Outcomes[K, T](len(requests))
        with self._lock:
            if self._closing:
                outcomes.abandon()
            self._rounds.add(outcomes)
        tasks: dict[K, _Task] = {}
        for key, request in requests.items():
            known = self._queue(request, even_if_slow, progressive, outcomes, key, tasks)
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
                    # Their answers are not needed any more, and an action must not run late.
                    for task in tasks.values():
                        self._discard(task)
        for key, task in tasks.items():
            if key not in answers and key not in failures:
                failures[key] = self._overdue(task, progressive)
        ordered = {key: answers[key] for key in requests if key in answers}
        return ordered, [failures[key] for key in requests if key in failures]

    def close(self) -> None:
        """End rounds and threads; a thread that waits for an answer ends when it arrives."""
        with self._lock:
            self._closing = True
            rounds = list(self._rounds)
        for outcomes in rounds:
            outcomes.abandon()
        deadline = Deadline(0.2)
        for pool in self._pools:
            pool.stop(deadline)

    def _queue(
        self, request: Request[T], even_if_slow: bool, progressive: bool,
        outcomes: _Outcomes[K, T], key: K, tasks: dict[K, _Task],
    ) -> Failure | None:
        """Queue a request as a task; return the failure when it is not sent now."""
        now = time.monotonic()
        with self._lock:
            if request.server not in self._servers and len(self._servers) >= _MOST_SERVERS:
                self._forget_one()
            server = self._servers.setdefault(request.server, _Server())
            known = None if now >= server.penalty_until else server.failure
            if progressive and known is None:
                known = server.overdue
            if known is not None and not even_if_slow:
                # The failure may be of another request to the same server.
                return known._replace(kind=request.kind, address=request.address,
                                      asked=request.asked)
            standing = server.standing
            sources: tuple[str, ...] = request.sources
            if request.kind == "nsqlookupd":
                lane, sources = self._lanes[0], (request.address,)
            else:
                lane = self._lanes[1 if standing is Standing.LOST else 2]
            max_wait = min(server.max_wait, self._timeout) if progressive else None
            task = tasks[key] = _Task(request, outcomes, key, lane, max_wait)
            server.tasks.add(task)
            # A responsive server is worth the wait until a thread is free.
            waits = max_wait is None or standing is Standing.LOST
            outcomes.expect(key, now + (self._timeout if max_wait is None or waits else max_wait))
            # The nsqlookupd was removed meanwhile: the request may use the shares of all others.
            known_sources = [each for each in sources if each in self._sources] or self._sources
            lane.queue.put(task, known_sources, standing)
            return None

    def _forget_one(self) -> None:
        """Drop the oldest server: addresses change with every container. Needs _lock."""
        # A server that answered goes last: it would have to queue with the silent ones.
        silent = (name for name, server in self._servers.items() if server.took is None)
        forgotten = self._servers.pop(next(silent, None) or next(iter(self._servers)))
        for task in forgotten.tasks:
            if not task.is_started:
                task.lane.queue.discard(task)

    def _start_ready(self, lane: _Lane) -> None:
        """Give the threads the tasks that may start."""
        started = []
        with self._lock:
            while (task := lane.queue.take(0.0)) is not None:
                task.is_started = True
                started.append(task)
        now = time.monotonic()
        for task in started:
            if task.max_wait is not None:
                task.outcomes.expect(task.key, now + task.max_wait)
            lane.pool.put(task)

    def _discard(self, task: _Task) -> None:
        """Drop a task that has not started. Needs _lock."""
        if not task.is_started:
            task.lane.queue.discard(task)
            server = self._servers.get(task.request.server)
            if server is not None:
                server.tasks.discard(task)

    def _overdue(self, task: _Task, progressive: bool) -> Failure:
        """Return the failure of a task without an answer at the end of its round."""
        request = task.request
        late = Failure(request.kind, request.address, f"no answer within {self._timeout:g} s",
                       request.asked)
        with self._lock:
            # The server was dropped meanwhile: then nothing is kept.
            server = self._servers.get(request.server) or _Server()
            if not progressive:
                if not task.is_started:
                    late = late._replace(reason=_NOT_SENT)
                self._note_silence(server, late)
                return late
            waiting = late._replace(reason=WAITING, is_waiting=True)
            if server.failure is not None:
                waiting = late._replace(reason=server.failure.reason)
            if task in server.tasks:  # else its answer came just now, for the next round
                server.overdue = waiting
            return waiting

    def _run(self, task: _Task) -> None:
        with self._lock:
            if self._closing:
                return  # it would open a connection that is never closed
        request = task.request
        begun = time.monotonic()
        failure = value = None
        try:
            value = request.call()
        except Exception as exc:
            if not isinstance(exc, NSQError):
                logger.exception("request to %s %s failed", request.kind, request.address)
            failure = _failure(request, exc)
        # First: a round that ends with this outcome needs the history and the next tasks.
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
            server = self._servers.get(task.request.server)
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
            # Status 0: no HTTP answer. A refused connection is quick; a timeout is a penalty.
            if not failure.status and (
                "within" in failure.reason or "in time" in failure.reason
            ):
                self._note_silence(server, failure)
            else:
                server.failure = None

    def _note_silence(self, server: _Server, failure: Failure) -> None:
        """Send no requests to a server for a while. Needs _lock."""
        server.failure = failure
        if time.monotonic() >= server.penalty_until:
            server.penalty_until = time.monotonic() + _PENALTY


class _Outcomes(Generic[K, T]):
    """The outcomes of one round so far."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._changed = threading.Condition()
        self._answers: dict[K, T] = {}  # guarded by _changed, as the others
        self._failures: dict[K, Failure] = {}
        self._deadlines: dict[K, float] = {}  # of those without an outcome
        self._last: K | None = None  # of these the key with the latest deadline
        self._waits_until: float | None = None  # its deadline

    def expect(self, key: K, deadline: float) -> None:
        """Set the deadline of a key, on ``time.monotonic()``; may be called again."""
        with self._changed:
            if key in self._answers or key in self._failures:
                return
            self._deadlines[key] = deadline
            if self._waits_until is None or deadline > self._waits_until or key == self._last:
                self._changed.notify_all()

    def settle(
        self, key: K, *, answers: tuple[T, ...] = (), failure: Failure | None = None
    ) -> None:
        """Record an answer or a failure."""
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
        """End the wait for answers."""
        with self._changed:
            self._left = 0
            self._changed.notify_all()

    def wait(self) -> tuple[dict[K, T], dict[K, Failure]]:
        """Wait until each key has an outcome, or is past its deadline."""
        with self._changed:
            while self._left > 0 and self._deadlines:
                # The latest of several with the same deadline: mostly they end in their order.
                self._last = max(reversed(self._deadlines), key=self._deadlines.__getitem__)
                self._waits_until = self._deadlines[self._last]
                remaining = self._waits_until - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            return dict(self._answers), dict(self._failures)


def _failure(request: Request[T], exc: Exception) -> Failure:
    reason = exc.reason if isinstance(exc, NSQHTTPError) else str(exc) or type(exc).__name__
    if isinstance(exc, NSQHTTPResponseError):
        reason = f"unusable answer: {reason.removeprefix('not a usable answer: ')}"
    reason = without_password(printable(reason, LONGEST_TEXT))
    status, code = (exc.status, exc.message) if isinstance(exc, NSQHTTPStatusError) else (0, "")
    return Failure(request.kind, request.address, reason, request.asked, status, code)
