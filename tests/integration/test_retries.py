"""Retry policies, GiveUp and dead letters, on both kinds of server."""

from nsqclient import (
    Consumer, DeadLetter, DeadLetterTopic, GiveUp, Producer, Retry, RetryTable,
)
from tests.integration.test_consumer import QUICK, Collector, consume, publish
from tests.support.waiting import wait_until


def is_settled(server):
    stats = server.stats("events", "c")
    return not (stats["depth"] or stats["in_flight_count"] or stats.get("deferred_count"))


def test_a_table_decides_by_the_type_of_the_exception(server):
    """One is requeued with a short delay up to its own limit, one is given up at once."""
    kept = []

    def fail(message):
        raise {b"later": ConnectionError, b"never": ValueError}[message.body](message.body)

    def keep(message):
        kept.append((message.body, message.attempts, message.failure.reason))

    publish(server, b"later", b"never")
    retry = RetryTable({
        OSError: Retry(0.01, jitter=0, max_attempts=3, backoff=False),
        ValueError: GiveUp("invalid"),
    })
    with consume(server, Collector(fail), config=QUICK, retry=retry, on_giving_up=keep) as consumer:
        wait_until(lambda: len(kept) == 2)
        wait_until(lambda: is_settled(server))
        total = consumer.stats().total
    assert sorted(kept) == [
        (b"later", 3, "ConnectionError: b'later', after 3 attempts"), (b"never", 1, "invalid")]
    assert (total.given_up, total.requeued, total.finished) == (2, 2, 2)


def test_give_up_makes_a_dead_letter_that_explains_itself(server):
    """Topic, channel, id, attempts, times, exception and traceback, nsqd and host."""
    def check(message):
        try:
            int(message.body)
        except ValueError as error:
            raise GiveUp("no number") from error

    publish(server, b"seven")
    letters = Collector()
    with Producer([server.tcp_address]) as producer:
        collector = Collector(check)
        keep = DeadLetterTopic(producer, "events.dead")
        with consume(server, collector, config=QUICK, on_giving_up=keep):
            wait_until(lambda: server.stats("events.dead").get("depth") == 1)
            wait_until(lambda: is_settled(server))
    (message,) = collector.messages
    with Consumer("events.dead", "ops", letters, nsqd_tcp_addresses=[server.tcp_address]):
        wait_until(lambda: letters.messages)
    letter = DeadLetter.parse(letters.bodies[0])
    assert (letter.body, letter.topic, letter.channel) == (b"seven", "events", "c")
    assert (letter.id, letter.attempts, letter.timestamp) == (
        message.id.decode(), 1, message.timestamp)
    assert (letter.reason, letter.nsqd_address) == ("no number", server.tcp_address)
    assert letter.exception == "nsqclient.message.GiveUp: no number"
    assert "invalid literal for int()" in letter.traceback and "in check" in letter.traceback
    assert letter.given_up_at and letter.host
