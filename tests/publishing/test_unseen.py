"""Failures of Futures that nobody looks at."""

from __future__ import annotations

import logging

import pytest

from nsqclient.errors import PublishUnknown
from nsqclient.publishing import unseen
from nsqclient.publishing.items import Item
from nsqclient.publishing.unseen import UnseenFailures


@pytest.fixture
def failures():
    """Nothing noted yet."""
    return UnseenFailures()


def fail(failures):
    """Return a Future that has failed."""
    item = Item("t", b"x", None, 0.0, 1.0)
    assert item.fail(PublishUnknown("lost"), failures.note)
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
    """After a while there is another one."""
    monkeypatch.setattr(unseen, "_PAUSE", 0.0)
    for _ in range(2):
        fail(failures)
        failures.report()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("look", [
    lambda item: item.exception(0),
    lambda item: pytest.raises(PublishUnknown, item.result, 0),
    lambda item: item.add_done_callback(lambda _: None),
])
def test_who_looks_needs_no_warning(failures, caplog, look):
    """result(), exception() and a callback are looks."""
    caplog.set_level(logging.WARNING)
    look(fail(failures))
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_before_the_outcome_counts(failures, caplog):
    """A callback that was there before the failure has seen it."""
    item = Item("t", b"x", None, 0.0, 1.0)
    item.add_done_callback(lambda _: None)
    item.fail(PublishUnknown("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_a_look_at_the_moment_of_the_failure_counts(failures, caplog):
    """Who begins to wait just when the Future fails needs no warning either."""
    class Late(Item):
        """Somebody looks between the check for a look and its use."""

        @property
        def _is_looked_at(self):
            Item._look(self)
            return False

        @_is_looked_at.setter
        def _is_looked_at(self, value):
            pass

    item = Late("t", b"x", None, 0.0, 1.0)
    item.fail(PublishUnknown("lost"), failures.note)
    del item
    failures.report(at_once=True)
    assert not caplog.records


def test_two_threads_that_tell_at_once(failures, caplog):
    """What another thread has told meanwhile is neither told twice nor an error."""
    class Shrinking(type(failures._errors)):
        """Another thread takes the last one after it was counted."""

        def __len__(self):
            return super().__len__() + 1

    failures._errors = Shrinking([PublishUnknown("lost")])
    failures.report()
    assert caplog.messages[0].startswith("1 ")
