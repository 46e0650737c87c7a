"""Requests to many servers at once: failures are listed, silent servers get fewer requests."""

import threading
from collections.abc import Iterator

import pytest

from nsqclient.cluster import ask_all as module
from nsqclient.errors import NSQHTTPTransportError, NSQHTTPStatusError
from nsqclient.cluster.ask_all import WAITING, AskAll, Request
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until


@pytest.fixture
def ask_all(leak_guard: None) -> Iterator[AskAll]:
    found = AskAll(0.5)
    yield found
    found.close()


def raising(exc: Exception):
    def ask():
        raise exc

    return ask


def test_answers_come_in_order_and_failures_are_named(ask_all):
    answers, failures = ask_all.run({
        "b": Request("nsqd", "b:1", lambda: 2),
        "x": Request(
            "nsqd", "x:1", raising(NSQHTTPStatusError("u", 404, "TOPIC_NOT_FOUND")), "y:1"),
        "a": Request("nsqd", "a:1", lambda: 1),
    })
    assert list(answers.items()) == [("b", 2), ("a", 1)]
    assert failures[0].text() == "nsqd x:1 (asked at y:1): HTTP 404: TOPIC_NOT_FOUND"
    assert (failures[0].status, failures[0].code) == (404, "TOPIC_NOT_FOUND")


def test_a_silent_server_does_not_delay_the_others(ask_all):
    release = threading.Event()
    answers, failures = ask_all.run({
        "silent": Request("nsqd", "silent:1", lambda: release.wait(20)),
        "quick": Request("nsqd", "quick:1", lambda: "here"),
    })
    release.set()
    assert answers == {"quick": "here"}
    assert failures[0].text() == "nsqd silent:1: no answer within 0.5 s"


def test_a_silent_server_gets_no_requests_for_a_while(ask_all, monkeypatch):
    """Otherwise each round would wait for it. An action sends a request nevertheless."""
    asked = []

    def ask():
        asked.append(1)
        raise NSQHTTPTransportError("u", "no connection within 2 s")

    monkeypatch.setattr(module, "_SILENCE", 0.0)
    request = {"k": Request("nsqd", "far:1", ask)}
    for _ in range(3):
        assert ask_all.run(request)[1][0].reason == "no connection within 2 s"
    assert len(asked) == 1
    ask_all.run(request, is_action=True)
    assert len(asked) == 2


def test_a_server_that_rejects_requests_gets_one_in_every_round(ask_all):
    """A rejection costs nothing, so its end is noticed at once."""
    outcomes = iter([raising(NSQHTTPTransportError("u", "connection refused")), lambda: "back"])
    request = {"k": Request("nsqd", "near:1", lambda: next(outcomes)())}
    assert ask_all.run(request)[1]
    assert ask_all.run(request)[0] == {"k": "back"}


def test_an_unexpected_exception_is_a_failure_and_logged(ask_all, caplog):
    answers, failures = ask_all.run({"k": Request("nsqd", "a:1", raising(KeyError("oops")))})
    assert not answers and "oops" in failures[0].reason
    assert "request to nsqd a:1 failed" in caplog.text


@pytest.fixture
def patient(leak_guard: None) -> Iterator[AskAll]:
    """A AskAll whose rounds may take long: rounds that end early are progressive."""
    found = AskAll(60.0)
    yield found
    found.close()


@pytest.fixture
def silent() -> Iterator[threading.Event]:
    release = threading.Event()
    yield release
    release.set()


def test_a_progressive_round_does_not_wait_for_a_hung_server(patient, silent):
    """The other answers are there after a second; the failure is marked as waiting."""
    answers, failures = patient.run({
        "hung": Request("nsqd", "hung:1", lambda: silent.wait(60)),
        "well": Request("nsqd", "well:1", lambda: "here"),
    }, progressive=True)
    assert answers == {"well": "here"}
    assert (failures[0].reason, failures[0].is_waiting) == (WAITING, True)


def test_a_hung_server_gets_one_request(patient, silent):
    """Further rounds do not occupy a thread each, and do not wait for it again."""
    asked = []
    request = Request("nsqd", "hung:1", lambda: asked.append(1) or silent.wait(60))
    for _ in range(20):
        answers, failures = patient.run({"hung": request}, progressive=True)
        assert not answers and failures[0].is_waiting
    assert len(asked) == 1
    silent.set()
    assert wait_until(lambda: patient.run({"hung": request}, progressive=True)[0]) == {
        "hung": True}


def test_a_slow_server_gets_the_time_of_its_last_answer(patient, silent, monkeypatch):
    """After a late answer the next round waits that long."""
    monkeypatch.setattr(module, "_WAIT", 0.01)
    timer = threading.Timer(2, silent.set)  # much longer than the second one, on a busy machine too
    timer.start()
    request = {"slow": Request("nsqd", "slow:1", lambda: silent.wait(60) and "here")}
    assert patient.run(request, progressive=True)[0] == {}
    wait_until(lambda: patient.run(request, progressive=True)[0])
    silent.clear()
    timer.join()
    timer = threading.Timer(0.1, silent.set)
    timer.start()
    assert patient.run(request, progressive=True)[0] == {"slow": "here"}
    timer.join()


def test_a_silent_server_keeps_its_reason(patient, silent, monkeypatch):
    """While a new request is under way after the penalty, the former reason is shown."""
    def refuse():
        raise NSQHTTPTransportError("u", "no whole answer within 5 s")

    monkeypatch.setattr(module, "_SILENCE", 0.0)
    monkeypatch.setattr(module, "_PENALTY", 0.0)
    patient.run({"k": Request("nsqd", "a:1", refuse)}, progressive=True)
    again = {"k": Request("nsqd", "a:1", lambda: silent.wait(60)),
             "well": Request("nsqd", "b:1", lambda: "here")}
    answers, failures = patient.run(again, progressive=True)
    assert answers == {"well": "here"}
    assert (failures[0].reason, failures[0].is_waiting) == ("no whole answer within 5 s", False)


def test_a_failure_has_the_name_of_its_request(patient, monkeypatch):
    def refuse():
        raise NSQHTTPTransportError("u", "no connection within 2 s")

    monkeypatch.setattr(module, "_SILENCE", 0.0)
    patient.run({"k": Request("nsqd", "given:1", refuse)})
    failures = patient.run({"k": Request("nsqd", "named:1", refuse, "given:1")})[1]
    assert (failures[0].address, failures[0].asked) == ("named:1", "given:1")


def test_no_request_is_sent_after_close(silent):
    """Requests that are queued behind a hung server are dropped."""
    asked = []
    ask_all = AskAll(60.0)
    hung = {n: Request("nsqd", f"hung:{n}", lambda: silent.wait(60))
            for n in range(module._THREADS)}
    ask_all.run(hung, progressive=True)
    ask_all.run({"k": Request("nsqd", "a:1", lambda: asked.append(1))}, progressive=True)
    ask_all.close()
    silent.set()
    ask_all._pool.stop(Deadline(20))
    assert asked == []


def test_a_request_that_missed_its_round_is_not_sent_later(silent):
    """The round ends; an action that waited for a thread is not carried out later."""
    done = []
    ask_all = AskAll(0.5)
    hung = {n: Request("nsqd", f"hung:{n}", lambda: silent.wait(60))
            for n in range(module._THREADS)}
    action = {"k": Request("nsqd", "a:1", lambda: done.append(1))}
    try:
        assert not ask_all.run({**hung, **action}, is_action=True)[0]
        failures = ask_all.run(action, is_action=True)[1]
        assert failures[0].reason == "no request yet: too many servers do not answer"
    finally:
        silent.set()
        ask_all.close()
        ask_all._pool.stop(Deadline(20))
    assert done == []
