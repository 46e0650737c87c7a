"""What happens to a message whose handler failed, by value; the ready-made policies."""

from datetime import timedelta

import pytest

from nsqclient import Consumer, Retry, RetryTable, partitioned
from nsqclient.config import Config
from nsqclient.consumer.retry import Decision, decide
from nsqclient.errors import ConfigError
from nsqclient.message import GiveUp, Message, Requeue


class Unspeakable(Exception):
    """An exception whose ``__str__`` raises."""

    def __str__(self):
        raise RuntimeError("no text")


def delivered(attempts=1):
    return Message(b"x", b"0" * 16, attempts, 1, 0.0, 60.0, object())


def delays(retry, count):
    return [retry(delivered(attempts), OSError()).delay for attempts in range(1, count + 1)]


def test_delays_grow_up_to_the_maximum():
    assert delays(Retry(5, 3, 100, 0), 5) == [5, 15, 45, 100, 100]
    assert delays(Retry(timedelta(minutes=1), 1, jitter=0), 3) == [60, 60, 60]


def test_a_delay_of_many_attempts_is_the_maximum():
    assert Retry(1, 1e6, 60, 0).delay(65535) == 60
    assert Retry(0, 2, 60, 0).delay(65535) == 0


def test_jitter_shortens_delays_by_up_to_its_part():
    """So that what failed together does not come again together, and never too late."""
    found = {Retry(10, jitter=0.5).delay(1) for _ in range(200)}
    assert len(found) > 100 and 5 <= min(found) < max(found) <= 10


def test_a_retry_gives_up_after_its_own_number_of_attempts():
    retry = Retry(max_attempts=3, backoff=False)
    assert retry(delivered(2), OSError("down")).backoff is False
    decision = retry(delivered(3), OSError("down"))
    assert isinstance(decision, GiveUp) and decision.reason == "OSError: down, after 3 attempts"


def test_the_nearest_class_of_an_exception_decides():
    """As with ``except``, whatever the order of the table."""
    table = RetryTable({
        Exception: Requeue(1), OSError: Requeue(2), ConnectionError: Requeue(3, backoff=False),
    })
    found = [table(delivered(), error).delay for error in
             (ValueError(), OSError(), TimeoutError(), ConnectionResetError())]
    assert found == [1, 2, 2, 3]
    assert table(delivered(), SystemExit()) is None


def test_a_table_has_a_default_and_classes_for_rules():
    """Requeue and GiveUp stand for ones without arguments; any policy is a rule."""
    table = RetryTable({ValueError: GiveUp, KeyError: lambda message, error: None}, Requeue)
    assert isinstance(table(delivered(), ValueError()), GiveUp)
    assert table(delivered(), KeyError()) is None
    assert table(delivered(), OSError()).delay is None


def test_one_rule_may_serve_many_messages():
    """A GiveUp in a table is not raised, so it keeps no traceback."""
    table = RetryTable({ValueError: GiveUp("invalid")})
    for _ in range(2):
        failure = decide(table, delivered(), ValueError("x"), 1, 5).failure
        assert failure.reason == "invalid" and isinstance(failure.exception, ValueError)


@pytest.mark.parametrize("attempts, most, requeued", [(4, 5, True), (5, 5, False), (9, 0, True)])
def test_the_last_attempt_gives_up_what_a_policy_would_requeue(attempts, most, requeued):
    """max_attempts of the consumer holds for every policy; 0: no limit."""
    decision = decide(Retry(), delivered(attempts), OSError("x"), attempts, most)
    assert (decision.requeue is not None) is requeued


@pytest.mark.parametrize("retry, raised, attempts, is_planned", [
    (Retry(), OSError(), 1, True),
    (lambda message, error: Requeue(5), OSError(), 1, True),
    (RetryTable({}), OSError(), 1, False),
    (None, OSError(), 1, False),
    (Retry(), OSError(), 5, False),
    (lambda message, error: GiveUp(), OSError(), 1, False),
    (Retry(), Requeue(), 1, False),
])
def test_a_retry_is_planned_where_the_policy_requeues(retry, raised, attempts, is_planned):
    assert decide(retry, delivered(attempts), raised, attempts, 5).is_planned is is_planned


@pytest.mark.parametrize("raised, reason", [
    (OSError("disk\nfull"), r"OSError: disk\nfull, after 5 attempts"),
    (KeyError(), "KeyError, after 5 attempts"),
    (Unspeakable(), "Unspeakable, after 5 attempts"),
    (Requeue(), "the handler raised Requeue, after 5 attempts"),
])
def test_the_reason_is_one_line(raised, reason):
    assert decide(None, delivered(5), raised, 5, 5) == Decision(None, (reason, raised), True)


def test_a_requeue_that_was_raised_from_an_exception_names_that():
    def handler():
        try:
            raise OSError("down")
        except OSError as error:
            raise Requeue() from error

    try:
        handler()
    except Requeue as raised:
        assert decide(None, delivered(5), raised, 5, 5).failure.reason == (
            "OSError: down, after 5 attempts")


@pytest.mark.parametrize("make, text", [
    (lambda: Retry(-1), "base"),
    (lambda: Retry(10, maximum=5), "maximum must be 10 s"),
    (lambda: Retry(factor=0.5), "factor must be a number from 1"),
    (lambda: Retry(jitter=1.5), "jitter must be a number from 0 to 1"),
    (lambda: Retry(max_attempts=-1), "max_attempts must be a whole number"),
    (lambda: Retry(backoff=1), "backoff must be True or False"),
    (lambda: RetryTable([ValueError]), "rules must map"),
    (lambda: RetryTable({"ValueError": GiveUp}), "is not an exception type"),
    (lambda: RetryTable({Requeue: GiveUp}), "has decided itself"),
    (lambda: RetryTable({ValueError: 5}), "rule for ValueError is not callable"),
    (lambda: RetryTable({ValueError: lambda error: None}), "rule for ValueError"),
    (lambda: RetryTable({}, default=5), "rule for default"),
])
def test_what_cannot_be_right_is_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


def consumer(handler=print, **options):
    return Consumer("t", "c", handler, **{"nsqd_tcp_addresses": ["127.0.0.1:1"], **options})


@pytest.mark.parametrize("retry", [
    Retry(max_attempts=9), RetryTable({OSError: Retry(max_attempts=9)}),
    RetryTable({}, Retry(max_attempts=9)),
])
def test_a_policy_with_more_attempts_than_the_consumer_allows_is_refused(retry):
    """The message would be given up before, and nobody would see why."""
    with pytest.raises(ConfigError, match="set max_attempts to 9 or more"):
        consumer(retry=retry)
    for allowed in (9, 0):
        consumer(retry=retry, config=Config(max_attempts=allowed))


def test_a_policy_needs_a_handler_and_no_order():
    """A loop over messages() answers itself; an ordered consumer has on_blocked."""
    with pytest.raises(ConfigError, match="retry needs a handler"):
        consumer(None, retry=Retry())
    with pytest.raises(ConfigError, match="use on_blocked"):
        partitioned.Consumer("t", "c", print, lookupd_http_addresses=["127.0.0.1:1"], ordered=True,
                             retry=Retry())
