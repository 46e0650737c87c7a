"""The short form of the outbox's chaos run, and how it judges."""

from __future__ import annotations

import pytest

pytest.importorskip("django", reason="Django comes with the test extra")

from tests.chaos import outbox  # noqa: E402 - after the check
from tests.support.servers.postgres import require_programs  # noqa: E402
from tests.support.servers.real_servers import program  # noqa: E402


def test_a_message_out_of_order_is_found():
    """A repetition is not out of order, and messages without a key have no order."""
    assert outbox.misplaced(["k:1:a", "k:2:a", "k:1:a", "-:0:b", "l:1:a", "k:3:a"]) == []
    assert outbox.misplaced(["k:2:a", "k:1:a"]) == ["out of order: k:1:a after number 2"]


def test_lost_and_rolled_back_messages_are_found():
    """Each is a failure of the run."""
    result = outbox.Result(committed={"k:1:a", "k:2:a"}, received=["k:1:a", "k:3:b"])
    assert ["lost" in result.failures[0], "rolled back" in result.failures[1]] == [True, True]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_kills_of_relay_nsqd_and_database_lose_nothing_and_publish_nothing_else(tmp_path):
    """And the messages of a key stay in order; each is killed twice."""
    program("nsqd")
    require_programs()
    result = outbox.run(tmp_path, 7, 2)
    assert result.failures == []
    assert result.kills == {"relay": 2, "nsqd": 2, "database": 2}
    assert len(result.committed) > 50 and result.rolled_back > 5
