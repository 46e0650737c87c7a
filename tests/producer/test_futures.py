"""Messages under way, and the callers that wait for their outcome."""

import logging

import pytest

from nsqclient.errors import ClosedError, PublishUnknownError
from nsqclient.producer import futures as publish_futures
from nsqclient.producer.futures import PublishFuture, UnretrievedErrors
from nsqclient.runtime import futures
from nsqclient.runtime.futures import start_all, succeed_all
from tests.support.processes import in_child


def future(delay_ms=None):
    """A message that a Future stands for."""
    return PublishFuture("t", b"x", delay_ms, 0.0, 1.0)


def test_the_first_bad_outcome_stays():
    item = future()
    start_all([item])
    assert item.fail(PublishUnknownError("first"))
    assert not item.fail(PublishUnknownError("second"))
    with pytest.raises(PublishUnknownError, match="first"):
        item.result(0)


def test_of_several_threads_one_begins_a_message():
    """Its worker, or the timer that finds it late."""
    items = [future() for _ in range(3)]
    assert start_all([items[0]]) == [items[0]]
    assert items[1].cancel()
    assert start_all(items) == [items[2]] and start_all(items) == []
    assert items[1].cancelled()


def test_an_outcome_that_is_there_stays():
    """close() may have been faster."""
    item, other = future(), future()
    other.add_done_callback(lambda _: None)
    for one in start_all([item, other]):
        one.fail(PublishUnknownError("closed"))
    succeed_all([item, other])
    assert isinstance(item.exception(0), PublishUnknownError)
    assert isinstance(other.exception(0), PublishUnknownError)


def test_a_deferred_message_is_sent_alone():
    assert future(delay_ms=1).alone and not future().alone


def test_abandoned_in_a_child():
    pending, stored = future(), future()
    start_all([stored])
    succeed_all([stored])
    pending._condition.acquire()  # as a thread would that does not exist in the child
    for item in (pending, stored):
        item.abandon()
    assert isinstance(pending.exception(0), ClosedError)
    assert stored.result(0) is None


def test_a_fork_while_another_thread_settles_a_message():
    """The lock that all messages share is a new one in the child."""
    def work():
        item = future()
        assert start_all([item]) == [item]
        succeed_all([item])

    with futures._quick:
        assert in_child(work) == 0


@pytest.fixture
def failures():
    return UnretrievedErrors()


def fail(failures):
    """Return a Future that has failed."""
    item = future()
    start_all([item])
    assert item.fail(PublishUnknownError("lost"), failures.note)
    return item


def test_many_failures_are_one_warning(failures, caplog):
    """The count and the last error; the next warning waits, unless it is the end."""
    for _ in range(3):
        fail(failures)
    failures.report()
    fail(failures)
    failures.report()
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("3 ") and "lost" in caplog.messages[0]
    failures.report(at_once=True)
    assert caplog.messages[1].startswith("1 ")


def test_warnings_go_on(failures, caplog, monkeypatch):
    monkeypatch.setattr(publish_futures, "_PAUSE", 0.0)
    for _ in range(2):
        fail(failures)
        failures.report()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("look", [
    lambda item: item.exception(0),
    lambda item: pytest.raises(PublishUnknownError, item.result, 0),
    lambda item: item.add_done_callback(lambda _: None),
])
def test_a_look_at_the_failure_prevents_the_warning(failures, caplog, look):
    caplog.set_level(logging.WARNING)
    look(fail(failures))
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_before_the_outcome_counts(failures, caplog):
    item = future()
    item.add_done_callback(lambda _: None)
    item.fail(PublishUnknownError("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_at_the_moment_of_the_failure_counts(failures, caplog):
    """A caller that begins to wait just when the Future fails needs no warning either."""
    class Late(PublishFuture):
        @property
        def _is_looked_at(self):
            PublishFuture._look(self)
            return False

        @_is_looked_at.setter
        def _is_looked_at(self, value):
            pass

    item = Late("t", b"x", None, 0.0, 1.0)
    item.fail(PublishUnknownError("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_two_threads_that_report_at_once_report_once(failures, caplog):
    class Shrinking(type(failures._errors)):
        """Another thread takes the last one after it was counted."""

        def __len__(self):
            return super().__len__() + 1

    failures._errors = Shrinking([PublishUnknownError("lost")])
    failures.report()
    assert caplog.messages[0].startswith("1 ")
