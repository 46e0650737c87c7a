"""Asynchronous publishes to partitions."""

from __future__ import annotations

import pytest

from nsqclient.errors import PublishNotSent
from nsqclient.publishing.partitioned.deferred import Deferred
from nsqclient.publishing.statistics import Statistics
from nsqclient.runtime.deadline import Deadline

WAIT = 30.0


def test_a_thread_that_cannot_start_is_a_publish_that_was_not_sent(no_thread):
    """The error is one of the library's, and the next publish tries again."""
    deferred = Deferred(10, True, Statistics())
    with no_thread("nsq-publisher"), pytest.raises(PublishNotSent, match="no thread"):
        deferred.put(None, lambda: None, 1, Deadline(WAIT))
    assert deferred.pending == 0
    assert deferred.put(None, lambda: None, 1, Deadline(WAIT)).result(WAIT) is None
    assert deferred.close(Deadline(WAIT)) == []
