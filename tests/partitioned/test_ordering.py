"""The order of the messages of one partition."""

from __future__ import annotations

import pytest

from nsqclient.partitioned.ordering import OrderChecker, Position


@pytest.mark.parametrize(("internal_id", "offset", "position"), [
    (10, 100, Position.REDELIVERED), (11, 140, Position.NEXT), (9, 60, Position.BEHIND),
    (11, 60, Position.BEHIND), (9, 140, Position.BEHIND),
])
def test_order_is_checked_by_id_and_offset(internal_id, offset, position):
    """Both must not fall behind the last message that was finished."""
    checker = OrderChecker()
    checker.on_finished(10, 100)
    assert checker.position_of(internal_id, offset) is position


def test_a_new_connection_may_start_anywhere():
    """Before anything was finished there is no order to break."""
    assert OrderChecker().position_of(1, 0) is Position.NEXT
