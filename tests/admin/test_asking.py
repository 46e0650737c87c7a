"""Many servers are asked at once; those that fail are named, and silent ones spared for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nsqclient.admin import asking
from nsqclient.admin.asking import WAITING, Asker, Question
from nsqclient.errors import HTTPNoAnswerError, HTTPStatusError
from nsqclient.runtime.deadline import Deadline
from tests.support.waiting import wait_until


@pytest.fixture
def asker(leak_guard: None) -> Iterator[Asker]:
    """An asker whose rounds take half a second at most."""
    found = Asker(0.5)
    yield found
    found.close()


def raising(exc: Exception):
    """A question that fails."""
    def ask():
        raise exc

    return ask


def test_answers_come_in_order_and_failures_are_named(asker):
    """What answered is there, in the order of the questions; what did not says why."""
    answers, failures = asker.ask({
        "b": Question("nsqd", "b:1", lambda: 2),
        "x": Question("nsqd", "x:1", raising(HTTPStatusError("u", 404, "TOPIC_NOT_FOUND")), "y:1"),
        "a": Question("nsqd", "a:1", lambda: 1),
    })
    assert list(answers.items()) == [("b", 2), ("a", 1)]
    assert failures[0].text() == "nsqd x:1 (asked at y:1): HTTP 404: TOPIC_NOT_FOUND"
    assert (failures[0].status, failures[0].code) == (404, "TOPIC_NOT_FOUND")


def test_questions_are_asked_at_the_same_time(asker):
    """Each of three waits until all three are under way."""
    together = threading.Barrier(3, timeout=10)
    answers, failures = asker.ask(
        {n: Question("nsqd", str(n), together.wait) for n in range(3)})
    assert len(answers) == 3 and not failures


def test_one_that_is_silent_does_not_hold_the_others(asker):
    """After the deadline the round ends with what is there."""
    release = threading.Event()
    answers, failures = asker.ask({
        "silent": Question("nsqd", "silent:1", lambda: release.wait(20)),
        "quick": Question("nsqd", "quick:1", lambda: "here"),
    })
    release.set()
    assert answers == {"quick": "here"}
    assert failures[0].text() == "nsqd silent:1: no answer within 0.5 s"


def test_one_that_gave_no_answer_is_spared_for_a_while(asker):
    """A page would wait for it in each round; an action asks it nevertheless."""
    asked = []

    def ask():
        asked.append(1)
        raise HTTPNoAnswerError("u", "no connection within 2 s")

    question = {"k": Question("nsqd", "far:1", ask)}
    for _ in range(3):
        assert asker.ask(question)[1][0].reason == "no connection within 2 s"
    assert len(asked) == 1
    asker.ask(question, even_if_slow=True)
    assert len(asked) == 2


def test_one_that_refuses_is_asked_every_time(asker):
    """A refusal costs nothing, so its end is seen at once."""
    outcomes = iter([raising(HTTPNoAnswerError("u", "connection refused")), lambda: "back"])
    question = {"k": Question("nsqd", "near:1", lambda: next(outcomes)())}
    assert asker.ask(question)[1]
    assert asker.ask(question)[0] == {"k": "back"}


def test_a_bug_of_ours_is_a_failure_and_logged(asker, caplog):
    """An exception that nobody expected ends neither the round nor the thread."""
    answers, failures = asker.ask({"k": Question("nsqd", "a:1", raising(KeyError("oops")))})
    assert not answers and "oops" in failures[0].reason
    assert "asking nsqd a:1 failed" in caplog.text


# -- progressive rounds


@pytest.fixture
def patient(leak_guard: None) -> Iterator[Asker]:
    """An asker whose rounds may take long: what ends early ends because it is progressive."""
    found = Asker(60.0)
    yield found
    found.close()


@pytest.fixture
def silent() -> Iterator[threading.Event]:
    """What a server that hangs waits for."""
    release = threading.Event()
    yield release
    release.set()


def test_a_progressive_round_does_not_wait_for_one_that_hangs(patient, silent):
    """The others are there after a second; it is named as one that may still answer."""
    answers, failures = patient.ask({
        "hung": Question("nsqd", "hung:1", lambda: silent.wait(60)),
        "well": Question("nsqd", "well:1", lambda: "here"),
    }, progressive=True)
    assert answers == {"well": "here"}
    assert (failures[0].reason, failures[0].is_waiting) == (WAITING, True)


def test_one_that_hangs_is_asked_once(patient, silent):
    """Pages that ask again do not occupy a thread each, and do not wait for it a second time."""
    asked = []
    question = Question("nsqd", "hung:1", lambda: asked.append(1) or silent.wait(60))
    for _ in range(20):
        answers, failures = patient.ask({"hung": question}, progressive=True)
        assert not answers and failures[0].is_waiting
    assert len(asked) == 1
    silent.set()
    assert wait_until(lambda: patient.ask({"hung": question}, progressive=True)[0]) == {
        "hung": True}


def test_one_that_is_slow_is_waited_for(patient, silent, monkeypatch):
    """It answered before, if late: the next round has the time that it takes."""
    monkeypatch.setattr(asking, "_PATIENCE", 0.01)
    timer = threading.Timer(0.5, silent.set)
    timer.start()
    question = {"slow": Question("nsqd", "slow:1", lambda: silent.wait(60) and "here")}
    assert patient.ask(question, progressive=True)[0] == {}
    wait_until(lambda: patient.ask(question, progressive=True)[0])
    silent.clear()
    timer.join()
    timer = threading.Timer(0.1, silent.set)
    timer.start()
    assert patient.ask(question, progressive=True)[0] == {"slow": "here"}
    timer.join()


def test_one_that_was_silent_keeps_its_reason(patient, silent):
    """While it is asked again, the page says what it said; its penalty is over."""
    def refuse():
        raise HTTPNoAnswerError("u", "no whole answer within 5 s")

    patient.ask({"k": Question("nsqd", "a:1", refuse)}, progressive=True)
    with patient._lock:
        patient._servers["a:1"].penalty_until = 0.0
    again = {"k": Question("nsqd", "a:1", lambda: silent.wait(60)),
             "well": Question("nsqd", "b:1", lambda: "here")}
    answers, failures = patient.ask(again, progressive=True)
    assert answers == {"well": "here"}
    assert (failures[0].reason, failures[0].is_waiting) == ("no whole answer within 5 s", False)


def test_a_failure_is_named_as_it_is_asked_for(patient):
    """One server is asked under two names: what is remembered bears that of the question."""
    def refuse():
        raise HTTPNoAnswerError("u", "no connection within 2 s")

    patient.ask({"k": Question("nsqd", "given:1", refuse)})
    failures = patient.ask({"k": Question("nsqd", "named:1", refuse, "given:1")})[1]
    assert (failures[0].address, failures[0].asked) == ("named:1", "given:1")


def test_nothing_is_asked_after_the_end(silent):
    """What waits behind a server that hangs is not asked when that one answers at last."""
    asked = []
    asker = Asker(60.0)
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60))
            for n in range(asking._THREADS)}
    asker.ask(hung, progressive=True)
    asker.ask({"k": Question("nsqd", "a:1", lambda: asked.append(1))}, progressive=True)
    asker.close()
    silent.set()
    for pool in asker._pools:
        pool.stop(Deadline(20))
    assert asked == []


# -- many silent servers


def test_silent_servers_leave_threads_to_one_that_answered(patient, silent):
    """A server that answered the last time is asked at once, however many others are silent."""
    good = Question("nsqd", "good:1", lambda: "here", sources=("a",))
    patient.set_sources(["a"])
    assert patient.ask({"good": good})[0] == {"good": "here"}
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60), sources=("a",))
            for n in range(200)}
    for _ in range(3):
        assert patient.ask({**hung, "good": good}, progressive=True)[0] == {"good": "here"}


def test_silent_servers_of_one_nsqlookupd_leave_threads_to_those_of_another(patient, silent):
    """A server that was never asked is asked at once where another nsqlookupd lists it."""
    patient.set_sources(["hostile", "good"])
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60), sources=("hostile",))
            for n in range(200)}
    good = {"good": Question("nsqd", "good:1", lambda: "here", sources=("good", "hostile"))}
    assert patient.ask({**hung, **good}, progressive=True)[0] == {"good": "here"}


def test_servers_that_answered_once_and_hang_leave_threads_to_those_of_another(patient, silent):
    """What answers once and hangs then holds the share of its own nsqlookupd, and no more."""
    patient.set_sources(["hostile", "good"])
    silent.set()
    questions = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60) and "here",
                             sources=("hostile",)) for n in range(200)}
    good = {"good": Question("nsqd", "good:1", lambda: "here", sources=("good",))}
    assert len(patient.ask({**questions, **good})[0]) == 201
    silent.clear()
    later = {"good": Question("nsqd", "other:1", lambda: "here", sources=("good",))}
    patient._timeout = 2.0
    assert patient.ask({**questions, **good}, progressive=True)[0] == {"good": "here"}
    assert patient.ask({**questions, **later}, progressive=True)[0] == {"good": "here"}


def test_silent_nsqds_leave_threads_to_nsqlookupds(patient, silent):
    """nsqlookupds have threads of their own, and a silent one holds its share of them."""
    patient.set_sources(["silent", "good"])
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60), sources=("good",))
            for n in range(200)}
    lookupds = {"s": Question("nsqlookupd", "silent", lambda: silent.wait(60)),
                "g": Question("nsqlookupd", "good", lambda: "here")}
    assert patient.ask(hung, progressive=True)[0] == {}
    for _ in range(50):
        assert patient.ask(lookupds, progressive=True)[0] == {"g": "here"}


def test_what_was_not_asked_in_time_is_not_asked_later(silent):
    """A round that waits for all ends; an action that waited for a thread is not carried out."""
    done = []
    asker = Asker(0.5)
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60))
            for n in range(asking._THREADS)}
    action = {"k": Question("nsqd", "a:1", lambda: done.append(1))}
    try:
        assert not asker.ask({**hung, **action}, even_if_slow=True)[0]
        failures = asker.ask(action, even_if_slow=True)[1]
        assert failures[0].reason == "not asked yet: too many servers do not answer"
    finally:
        silent.set()
        asker.close()
        for pool in asker._pools:
            pool.stop(Deadline(20))
    assert done == []


def test_a_nsqlookupd_that_is_asked_no_more_still_has_its_questions_asked(patient):
    """The nsqlookupds may change between the list of nsqds and the questions to these."""
    patient.set_sources(["former"])
    patient.set_sources(["new"])
    question = {"k": Question("nsqd", "a:1", lambda: "here", sources=("former",))}
    assert patient.ask(question)[0] == {"k": "here"}


def test_good_servers_are_remembered_when_very_many_silent_ones_are_listed(patient, silent):
    """What is forgotten first is a server that never answered."""
    good = {"good": Question("nsqd", "good:1", lambda: "here")}
    patient.ask(good)
    hung = {n: Question("nsqd", f"hung:{n}", lambda: silent.wait(60)) for n in range(2500)}
    assert patient.ask({**hung, **good}, progressive=True)[0] == {"good": "here"}
    assert len(patient._servers) <= asking._MOST_SERVERS and "good:1" in patient._servers
