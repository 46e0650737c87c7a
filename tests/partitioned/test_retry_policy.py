"""The actions after errors of publishes and subscriptions."""

from __future__ import annotations

import random

import pytest

from nsqclient.partitioned.retry_policy import (
    RetryAction,
    SubscribeAction,
    lookup_wait,
    publish_retry_action,
    retry_delay,
    subscribe_action,
)


@pytest.mark.parametrize(("code", "action"), [
    ("E_FAILED_ON_NOT_LEADER", RetryAction.REFRESH),
    ("E_FAILED_ON_NOT_WRITABLE", RetryAction.REFRESH),
    ("E_TOPIC_NOT_EXIST", RetryAction.REFRESH),
    ("E_PUB_FAILED", RetryAction.RETRY),
    ("E_MPUB_FAILED", RetryAction.RETRY),
    ("E_PUB_TOO_MUCH_WAITING", RetryAction.RETRY),
    ("E_SOMETHING_NEW", RetryAction.RETRY),
    ("E_BAD_MESSAGE", RetryAction.RAISE),
    ("E_BAD_BODY", RetryAction.RAISE),
    ("E_BAD_TOPIC", RetryAction.RAISE),
    ("E_EXT_NOT_SUPPORT", RetryAction.RAISE),
    ("E_INVALID_JSON_HEADER", RetryAction.RAISE),
    ("INVALID_TRACE_ID", RetryAction.RAISE),
    ("E_UNAUTHORIZED", RetryAction.RAISE),
])
def test_retry_action_follows_from_the_error_code(code, action):
    """Each code of the table leads to its action, however often it comes."""
    assert {publish_retry_action(code, "", attempts) for attempts in (1, 2, 3)} == {action}


@pytest.mark.parametrize("code", ["E_INVALID", "E_BAD_PARTITION"])
def test_errors_of_stale_metadata_are_retried_once(code):
    """Metadata may be stale; a second refusal means what it says."""
    assert publish_retry_action(code, "cannot PUB", 1) is RetryAction.REFRESH
    assert publish_retry_action(code, "cannot PUB", 2) is RetryAction.RAISE


def test_an_unknown_command_is_not_retried():
    """No retry where the server does not know the command."""
    assert publish_retry_action("E_INVALID", "invalid command [[80]]", 1) is RetryAction.RAISE


class Steady(random.Random):
    """No jitter."""

    def random(self):
        return 0.0


def test_a_planned_move_is_noticed_soon_and_an_election_within_seconds():
    """A planned move takes up to 0.7 s, an election half a minute."""
    delays = [retry_delay(attempt, True, None, Steady()) for attempt in range(1, 20)]
    assert sum(delays[:5]) < 1 and max(delays[:6]) <= 0.2
    assert delays[-1] == max(delays) == 2.0
    assert delays == sorted(delays)


def test_other_errors_are_retried_within_a_second():
    """The server may store the next one."""
    delays = [retry_delay(attempt, False, None, Steady()) for attempt in range(1, 20)]
    assert delays[0] == 0.05 and delays[-1] == max(delays) < 1


def test_pauses_are_spread_by_a_quarter():
    """Many clients of one partition do not come at once."""
    delays = {retry_delay(9, True, None, random.Random(seed)) for seed in range(50)}
    assert len(delays) > 40 and 2.0 <= min(delays) < max(delays) <= 2.5


def test_the_last_second_of_the_timeout_is_used():
    """Attempts follow until no time is left for one, not until a pause does not fit."""
    left, attempts = 1.0, 0
    while (delay := retry_delay(9, True, left, Steady())) is not None:
        left -= delay
        attempts += 1
    assert 3 <= attempts < 10 and left < 0.03


@pytest.mark.parametrize(("left", "seconds"), [(None, 0.5), (30.0, 0.5), (0.6, 0.3), (0.0, 0.0)])
def test_the_wait_for_fresh_leaders_leaves_time_for_an_attempt(left, seconds):
    """Also where no nsqlookupd answers: half of the rest at most."""
    assert lookup_wait(left) == seconds


@pytest.mark.parametrize(("code", "action"), [
    ("E_SUB_EXTEND_NEED", SubscribeAction.TOGGLE_EXTEND),
    ("E_SUB_EXTEND_FORBIDDON", SubscribeAction.TOGGLE_EXTEND),
    ("E_SUB_ORDER_IS_MUST", SubscribeAction.FAIL),
    ("E_FAILED_ON_NOT_LEADER", SubscribeAction.REFRESH),
    ("E_FAILED_ON_NOT_WRITABLE", SubscribeAction.REFRESH),
    ("E_TOPIC_NOT_EXIST", SubscribeAction.REFRESH),
    ("E_SUB_CHANNEL_NOT_REGISTERED", SubscribeAction.REFRESH),
    ("E_BAD_PARTITION", SubscribeAction.REFRESH),
])
def test_action_after_a_refused_subscription_follows_from_the_error_code(code, action):
    """Each refusal of SUB leads to its action."""
    assert subscribe_action(code) is action
