"""What failures of servers mean, and since when they fail."""

import pytest

from nsqclient.admin.responses import Cause, FailureTimes, advice_for, cause_of
from nsqclient.cluster.ask_all import Failure


@pytest.mark.parametrize("failure, cause, advice", [
    (Failure("nsqd", "n:1", "no whole answer within 5 s"), Cause.HUNG, "SIGCONT"),
    (Failure("nsqd", "n:1", "no answer within 7.5 s"), Cause.HUNG, "process of this nsqd"),
    (Failure("nsqd", "n:1", "waiting for its answer", is_waiting=True), Cause.WAITING, "hangs"),
    (Failure("nsqd", "n:1", "connection refused: is nsqd running there?"), Cause.REFUSED, "start"),
    (Failure("nsqlookupd", "l:1", "connection refused: is it"), Cause.REFUSED, "the nsqlookupd"),
    (Failure("nsqd", "n:1", "host unknown"), Cause.UNREACHABLE, "--rewrite-address=n:1="),
    (Failure("nsqd", "n:1", "no connection within 2 s"), Cause.UNREACHABLE, "--rewrite-address"),
    (Failure("nsqlookupd", "l:1", "no connection within 2 s"), Cause.UNREACHABLE, "firewall"),
    (Failure("nsqd", "n:1", "TLS: certificate verify failed"), Cause.TLS, "root-ca"),
    (Failure("nsqd", "n:1", "unusable answer: no JSON"), Cause.WRONG_ANSWER, "--http-address"),
    (Failure("nsqd", "n:1", "HTTP 500", status=500), Cause.REJECTED, ""),
    (Failure("nsqd", "n:1", "it announces m:1", is_doubt=True), Cause.DOUBTFUL, ""),
    (Failure("nsqd", "n:1", "something new"), Cause.OTHER, ""),
])
def test_the_advice_fits_the_failure(failure, cause, advice):
    """A server that hangs is reachable: it gets no advice about addresses."""
    assert cause_of(failure) is cause
    text = advice_for(failure)
    assert advice in text and bool(text) == bool(advice)
    assert ("--rewrite-address" in text) <= (cause is Cause.UNREACHABLE)


def test_a_failure_has_the_time_of_the_first_round():
    """Another reason of the same server keeps the time; a round without the failure ends it."""
    times = FailureTimes()
    first = Failure("nsqd", "n:1", "waiting for its answer", is_waiting=True)
    times.add_round([first], 1000.0)
    later = Failure("nsqd", "n:1", "no whole answer within 5 s")
    times.add_round([later], 1010.0)
    assert times.dated(later).since == 1000.0
    assert times.dated(Failure("nsqd", "m:1", "refused")).since == 0.0
    times.add_round([], 1020.0)
    times.add_round([later], 1030.0)
    assert times.dated(later).since == 1030.0


def test_a_long_pause_of_the_rounds_begins_the_time_anew():
    """Nothing is known about the time in which no page was open."""
    times = FailureTimes()
    failure = Failure("nsqd", "n:1", "refused")
    times.add_round([failure], 1000.0)
    times.add_round([failure], 2000.0)
    assert times.dated(failure).since == 2000.0
