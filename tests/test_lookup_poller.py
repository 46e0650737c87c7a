"""``Poller`` by value: one request at a time to each nsqlookupd, what follows from an answer."""

from __future__ import annotations

from collections import deque

import pytest

from nsqclient.discovery import Poller
from nsqclient.errors import DiscoveryError
from nsqclient.runtime.lock import Lock


class World:
    """The owner of a poller; its background is a queue that the test works off."""

    def __init__(self):
        self.tasks = deque()
        self.answers = {}
        self.merged, self.reported = [], []
        self.further = []
        self.lock = Lock()
        self.poller = Poller(
            self.answer, lambda lookupd, task: self.tasks.append(task), self.lock,
            self.merge, self.report)

    def answer(self, lookupd):
        answer = self.answers.get(lookupd, lookupd.upper())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def merge(self, lookupd, answer, error):
        self.merged.append((lookupd, answer))
        further, self.further = self.further, []
        return further

    def report(self, lookupd, answer, error):
        self.reported.append((lookupd, answer, error))

    def ask(self, *lookupds, again=False):
        with self.lock:
            self.poller.ask(lookupds, again)

    def run_all(self):
        while self.tasks:
            self.tasks.popleft()()


@pytest.fixture
def world():
    return World()


def test_a_nsqlookupd_has_one_request_at_a_time(world):
    """The others are asked meanwhile."""
    world.ask("a")
    world.ask("a", "b")
    assert len(world.tasks) == 2 and world.poller.is_asking
    world.run_all()
    assert world.merged == [("a", "A"), ("b", "B")] and not world.poller.is_asking
    assert (world.poller.requests, world.poller.answered) == (2, 2)


def test_a_newer_question_is_asked_when_the_old_one_is_answered(world):
    """Its answer may be too old."""
    world.ask("a")
    world.ask("a", again=True)
    assert len(world.tasks) == 1
    world.run_all()
    assert len(world.merged) == 2


@pytest.mark.parametrize("error", [DiscoveryError("a", "refused"), RuntimeError("a bug")])
def test_a_failure_is_reported_and_not_asked_again_at_once(world, error):
    """Nobody waits for ever, whatever it was."""
    world.answers["a"] = error
    world.ask("a")
    world.ask("a", again=True)
    world.run_all()
    assert world.merged == [("a", None)] and not world.poller.is_asking
    (_, answer, reported), = world.reported
    assert answer is None and isinstance(reported, DiscoveryError)
    assert world.poller.answered == 0


def test_nsqlookupds_that_an_answer_names_are_asked_too(world):
    world.further = ["b"]
    world.ask("a")
    world.run_all()
    assert world.merged == [("a", "A"), ("b", "B")]


def test_a_request_is_late_after_some_time(world):
    """Newer answers of the others count more then."""
    world.ask("a", "b")
    assert world.poller.late(60.0) == set() and not world.poller.all_late(60.0)
    assert world.poller.late(-1.0) == {"a", "b"} and world.poller.all_late(-1.0)
    world.run_all()
    assert world.poller.all_late(60.0)  # nothing is under way
