"""Which publishes are attempted again, and when."""

import random

import pytest

from nsqclient.partitioned.attempts import is_final, retry_delay


@pytest.mark.parametrize(("codes", "is_last"), [
    (["E_FAILED_ON_NOT_LEADER", "E_FAILED_ON_NOT_WRITABLE", "E_TOPIC_NOT_EXIST", "E_PUB_FAILED",
      "E_MPUB_FAILED", "E_PUB_TOO_MUCH_WAITING", "E_SOMETHING_NEW"], False),
    (["E_BAD_MESSAGE", "E_BAD_BODY", "E_BAD_TOPIC", "E_EXT_NOT_SUPPORT", "E_INVALID_JSON_HEADER",
      "INVALID_TRACE_ID", "E_UNAUTHORIZED"], True),
])
def test_the_error_code_says_whether_another_attempt_may_succeed(codes, is_last):
    for code in codes:
        assert {is_final(code, "", attempts) for attempts in (1, 2, 3)} == {is_last}, code


@pytest.mark.parametrize("code", ["E_INVALID", "E_BAD_PARTITION"])
def test_errors_of_stale_metadata_are_retried_once(code):
    assert [is_final(code, "cannot PUB", attempts) for attempts in (1, 2)] == [False, True]


def test_an_unknown_command_is_not_retried():
    assert is_final("E_INVALID", "invalid command [[80]]", 1)


class Steady(random.Random):
    """A random generator without jitter."""

    def random(self):
        return 0.0


def test_a_planned_move_is_noticed_soon_and_an_election_within_seconds():
    """A planned move takes up to 0.7 s, an election half a minute."""
    delays = [retry_delay(attempt, True, None, Steady()) for attempt in range(1, 20)]
    assert sum(delays[:5]) < 1 and max(delays[:6]) <= 0.2
    assert delays[-1] == max(delays) == 2.0
    assert delays == sorted(delays)


def test_other_errors_are_retried_within_a_second():
    delays = [retry_delay(attempt, False, None, Steady()) for attempt in range(1, 20)]
    assert delays[0] == 0.05 and delays[-1] == max(delays) < 1


def test_pauses_are_spread_by_a_quarter():
    """So that the clients of a partition do not retry together."""
    delays = {retry_delay(9, True, None, random.Random(seed)) for seed in range(50)}
    assert len(delays) > 40 and 2.0 <= min(delays) < max(delays) <= 2.5


def test_the_last_second_of_the_timeout_is_used():
    """Delays get shorter before the deadline."""
    left, attempts = 1.0, 0
    while (delay := retry_delay(9, True, left, Steady())) is not None:
        left -= delay
        attempts += 1
    assert 3 <= attempts < 10 and left < 0.03
