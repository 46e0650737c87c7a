"""``AskAll``: asks many servers at once with one timeout, and lists the failures.

A *progressive* round, used for pages, waits only for the servers that usually answer. Answers that
arrive later are used in a later round. A server that did not answer is not asked again for some
seconds, so that it does not delay every round and occupy a thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nsqclient.display import LONGEST_TEXT, printable, without_password
from nsqclient.errors import NSQError, NSQHTTPError, NSQHTTPResponseError, NSQHTTPStatusError
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.workers import WorkerPool

logger: logging.Logger = logging.getLogger("nsqclient.http")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Maximum number of concurrent requests. A cluster has tens of servers.
_THREADS = 32
#: A request that fails after this many seconds counts as unanswered. A refused one fails sooner.
_SILENCE = 1.0
#: Seconds for which a silent server is not asked again.
_PENALTY = 8.0
#: Seconds that a progressive round waits for a server, and for a server that was silent before. A
#: slow server gets twice its usual time.
_WAIT = 1.0
_SHORT_WAIT = 0.25
#: Maximum number of servers whose response times are kept.
_MOST_SERVERS = 2000

#: ``ServerFailure.reason`` while the request is still under way.
WAITING = "waiting for its answer"
#: ``ServerFailure.reason`` if no request was sent, because all threads wait for other servers.
_NOT_SENT = "no request yet: too many servers do not answer"


class ServerFailure(NamedTuple):
    """A server that did not answer, or whose answer is unusable."""

    kind: str  #: ``nsqd`` or ``nsqlookupd``
    address: str  #: as shown to the user
    reason: str
    asked: str = ""  #: the address of the request, if it differs
    status: int = 0  #: the HTTP status if the server rejected the request
    code: str = ""  #: the error code of the rejection
    is_waiting: bool = False  #: the request is still under way
    is_doubt: bool = False  #: the server answered, but its data is doubtful
    is_gone: bool = False  #: a known nsqd that no nsqlookupd lists any more
    since: float = 0.0  #: first time of this failure, in seconds since the epoch; 0: unknown
    is_lasting: bool = False  #: a retry would fail too: the address is of another kind of server

    def text(self) -> str:
        where = f" (asked at {self.asked})" if self.asked and self.asked != self.address else ""
        return without_password(f"{self.kind} {self.address}{where}: {self.reason}")


class UpstreamError(NSQError):
    """The requests to all servers failed."""

    def __init__(self, what: str, failures: Sequence[ServerFailure]) -> None:
        super().__init__(
            f"failed to query any {what}: " + "; ".join(each.text() for each in failures)
        )
        self.failures: tuple[ServerFailure, ...] = tuple(failures)


@dataclass(frozen=True)
class Request(Generic[T]):
    kind: str
    address: str
    call: Callable[[], T]
    asked: str = ""


class _Server:
    took = 0.0  # seconds that answers take; 0: none yet
    silence: ServerFailure | None = None  # set if the last request was not answered
    silent_until = 0.0  # time before which no request is sent
    late: ServerFailure | None = None  # a progressive round ended before the answer arrived

    def known_failure(self, now: float, progressive: bool) -> ServerFailure | None:
        if self.silence is not None and now < self.silent_until:
            return self.silence
        return self.late if progressive else None

    @property
    def max_wait(self) -> float:
        return _SHORT_WAIT if self.silence is not None else max(_WAIT, 2 * self.took)

    def note_silence(self, failure: ServerFailure) -> None:
        self.silence, self.silent_until = failure, time.monotonic() + _PENALTY


@dataclass(eq=False)
class _Task:
    key: Any
    request: Request[Any]
    server: _Server
    round: _Round
    until: float  # when the round stops waiting
    is_started: bool = False
    is_dropped: bool = False


class _Round:
    """The outcomes of one round. Guarded by the lock of AskAll."""

    def __init__(self) -> None:
        self.tasks: list[_Task] = []
        self.answers: dict[Any, Any] = {}
        self.failures: dict[Any, ServerFailure] = {}
        self.left: Counter[float] = Counter()  # task.until -> number of open requests


class AskAll:
    """Sends requests in threads. A round lasts at most ``timeout`` seconds.

    Threads: any; several rounds may run at once.
    """

    def __init__(self, timeout: float, name: str = "nsq-ask") -> None:
        self._timeout = timeout
        self._pool: WorkerPool[_Task] = WorkerPool(name, _THREADS, self._run)
        self._changed = threading.Condition()
        self._servers: dict[str, _Server] = {}  # guarded by _changed, as the others
        self._closing = False

    def run(
        self, requests: Mapping[K, Request[T]], *, is_action: bool = False,
        progressive: bool = False,
    ) -> tuple[dict[K, T], list[ServerFailure]]:
        """Send all requests; return the answers, in the order of the requests, and the failures.

        Args:
            is_action: also ask servers that recently did not answer.
            progressive: report servers that are slower than usual as failures, without waiting.

        Blocks: up to the timeout.
        """
        self._pool.start()
        current = _Round()
        with self._changed:
            for key, request in requests.items():
                self._add(current, key, request, is_action, progressive)
            # Servers that usually answer come first, and do not wait behind the others.
            current.tasks.sort(key=lambda task: not task.server.took)
        self._pool.put_many(current.tasks)
        with self._changed:
            while not self._closing and current.left:
                remaining = max(current.left) - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            answers, failures = dict(current.answers), dict(current.failures)
            for task in current.tasks:
                if task.key not in answers and task.key not in failures:
                    failures[task.key] = self._end_late(task, progressive)
        ordered = {key: answers[key] for key in requests if key in answers}
        return ordered, [failures[key] for key in requests if key in failures]

    def close(self) -> None:
        """End all rounds and idle threads. A busy thread ends when its request does."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._pool.stop(Deadline(0.2))

    def _add(
        self, current: _Round, key: Hashable, request: Request[Any], is_action: bool,
        progressive: bool,
    ) -> None:
        now, name = time.monotonic(), request.asked or request.address
        if name not in self._servers and len(self._servers) >= _MOST_SERVERS:
            self._servers.pop(next(iter(self._servers)))
        server = self._servers.setdefault(name, _Server())
        known = None if is_action else server.known_failure(now, progressive)
        if known is not None:
            # The failure may come from another request to the same server.
            current.failures[key] = known._replace(
                kind=request.kind, address=request.address, asked=request.asked)
            return
        until = now + (min(server.max_wait, self._timeout) if progressive else self._timeout)
        current.tasks.append(_Task(key, request, server, current, until))
        current.left[until] += 1

    def _end_late(self, task: _Task, progressive: bool) -> ServerFailure:
        request, server = task.request, task.server
        late = ServerFailure(
            request.kind, request.address, f"no answer within {self._timeout:g} s", request.asked)
        if not progressive:
            task.is_dropped = True  # an action must not run after its caller was told of a failure
            if not task.is_started:
                late = late._replace(reason=_NOT_SENT)
            server.note_silence(late)
            return late
        server.late = late._replace(reason=WAITING, is_waiting=True) if server.silence is None \
            else late._replace(reason=server.silence.reason)
        return server.late

    def _run(self, task: _Task) -> None:
        request, server, current = task.request, task.server, task.round
        with self._changed:
            if self._closing or task.is_dropped:
                return
            task.is_started = True
        begun = time.monotonic()
        failure = value = None
        try:
            value = request.call()
        except Exception as exc:
            if not isinstance(exc, NSQError):
                logger.exception("request to %s %s failed", request.kind, request.address)
            failure = _failure(request, exc)
        seconds = time.monotonic() - begun
        with self._changed:
            server.late = None
            if failure is not None and not failure.status and seconds >= _SILENCE:
                server.note_silence(failure)
            else:
                server.silence = None
            if failure is None:
                server.took = max(seconds, 0.8 * server.took)
                current.answers[task.key] = value
            else:
                current.failures[task.key] = failure
            current.left[task.until] -= 1
            if not current.left[task.until]:
                del current.left[task.until]
                self._changed.notify_all()


def _failure(request: Request[T], exc: Exception) -> ServerFailure:
    reason = exc.reason if isinstance(exc, NSQHTTPError) else str(exc)
    if not isinstance(exc, NSQError):
        reason = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, NSQHTTPResponseError):
        reason = f"unusable answer: {reason.removeprefix('not a usable answer: ')}"
    reason = without_password(printable(reason, LONGEST_TEXT))
    status, code = (exc.status, exc.message) if isinstance(exc, NSQHTTPStatusError) else (0, "")
    return ServerFailure(
        request.kind, request.address, reason, request.asked, status, code,
        is_lasting=bool(getattr(exc, "is_lasting", False)))
