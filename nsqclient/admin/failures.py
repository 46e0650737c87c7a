"""What the failures of servers mean: a cause, advice that fits it, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from nsqclient.http.ask_all import Failure

#: Seconds without a round after which nothing is known about the time between.
_LONGEST_GAP = 60.0


class Cause(Enum):
    """Why a server has no values; the value is its name for the pages."""

    WAITING = "waiting"
    HUNG = "hung"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    WRONG_ANSWER = "wrong"
    REJECTED = "rejected"
    DOUBTFUL = "doubtful"
    OTHER = "failed"


#: Cause -> words in a reason, in the order in which they are looked for.
_WORDS = (
    (Cause.UNREACHABLE, ("no connection within", "host unknown", "unreachable", "No route")),
    (Cause.HUNG, ("no whole answer within", "no answer within", "redirects have taken")),
    (Cause.REFUSED, ("refused",)),
    (Cause.TLS, ("TLS: ",)),
    (Cause.WRONG_ANSWER, ("unusable answer", "not HTTP")),
    (Cause.WAITING, ("waiting for its answer", "no request yet")),
)


def cause_of(failure: Failure) -> Cause:
    """Return the cause of a failure."""
    if failure.is_doubt:
        return Cause.DOUBTFUL
    if failure.is_waiting:
        return Cause.WAITING
    if failure.status:
        return Cause.REJECTED
    for cause, words in _WORDS:
        if any(word in failure.reason for word in words):
            return cause
    return Cause.OTHER


def advice_for(failure: Failure) -> str:
    """Return what to do about a failure, in a sentence or two; empty: the reason says it."""
    cause, kind = cause_of(failure), failure.kind
    if cause is Cause.UNREACHABLE and kind == "nsqd":
        return ("This page has no route to that address: start nsqadmin with"
                f" --rewrite-address={failure.address}=HOST:PORT, or nsqd with a"
                " --broadcast-address that is reachable from here.")
    if cause is Cause.REFUSED and kind == "nsqd":
        return ("Nothing listens there: start this nsqd again. A killed nsqd stays listed at"
                " nsqlookupd for some minutes.")
    return _ADVICE.get(cause, "").format(kind=kind)


_ADVICE = {
    Cause.HUNG: "It accepts connections and does not answer: look at the process of this {kind} on"
                " its host. It may be stopped (SIGCONT continues it), or its disk or memory is"
                " exhausted.",
    Cause.WAITING: "If this stays so, the {kind} hangs.",
    Cause.REFUSED: "Nothing listens there: start the {kind}, or correct the address.",
    Cause.UNREACHABLE: "This page has no route to that address: see name, address and firewall.",
    Cause.TLS: "See --http-client-tls-root-ca-file, and whether the address should begin with"
               " https://.",
    Cause.WRONG_ANSWER: "Something else answers there, or the {kind} is broken: see that this is"
                        " the --http-address of a {kind}.",
}


class FailureTimes:
    """Since when servers fail, over the rounds of the collector. Threads: one at a time."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str, bool], float] = {}
        self._last_round = 0.0

    def add_round(self, failures: Iterable[Failure], now: float) -> None:
        """Add the failures of a round; ``now`` is in seconds since the epoch."""
        if now - self._last_round > _LONGEST_GAP:
            self._since = {}
        self._last_round = now
        self._since = {key: self._since.get(key, now) for key in map(_key, failures)}

    def dated(self, failure: Failure) -> Failure:
        """Return the failure with its time; a failure that is in no round has none."""
        return failure._replace(since=self._since.get(_key(failure), 0.0))


def _key(failure: Failure) -> tuple[str, str, bool]:
    return failure.kind, failure.address, failure.is_doubt
