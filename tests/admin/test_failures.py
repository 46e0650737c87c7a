"""How the pages report servers that fail."""

import pytest

from nsqclient.admin.responses import problem
from nsqclient.cluster.ask_all import ServerFailure


@pytest.mark.parametrize("failure, state, advice", [
    (ServerFailure("nsqd", "n:1", "no answer within 5 s"), "fails", "SIGCONT"),
    (ServerFailure("nsqd", "n:1", "host unknown"), "fails", "--rewrite-address=n:1="),
    (ServerFailure("nsqlookupd", "l:1", "connection refused"), "fails", "this nsqlookupd runs"),
    (ServerFailure("nsqd", "n:1", "no answer yet", is_waiting=True), "waiting", "SIGCONT"),
    (ServerFailure("nsqd", "n:1", "not listed", is_gone=True), "gone", "--data-path"),
    (ServerFailure("nsqd", "n:1", "HTTP 500", status=500), "fails", ""),
    (ServerFailure("nsqd", "n:1", "not HTTP", is_lasting=True), "fails", ""),
    (ServerFailure("nsqd", "n:1", "it announces m:1", is_doubt=True), "doubtful", ""),
])
def test_the_advice_fits_the_failure(failure, state, advice):
    shown = problem(failure)
    assert shown["state"] == state
    assert advice in shown["advice"] and bool(shown["advice"]) == bool(advice)
    is_reached = failure.is_waiting or failure.kind != "nsqd"
    assert not (is_reached and "--rewrite-address" in shown["advice"])
