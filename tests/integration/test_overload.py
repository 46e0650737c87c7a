"""A consumer that is sent more than its handlers can do in time, on both kinds of server."""

from __future__ import annotations

import threading

from nsqclient import Config, Consumer, Producer
from tests.support.waiting import wait_until

#: Of the twenty messages that are out, a handler gets to four before the others expire.
MSG_TIMEOUT, HANDLER_TIME, MAX_IN_FLIGHT = 0.25, 0.06, 20


def test_every_message_of_an_overloaded_consumer_is_handled(server_factory, caplog):
    """Deliveries that expired in the consumer's queue do not use up max_attempts."""
    server = server_factory(msg_timeout=MSG_TIMEOUT)
    bodies = {b"%d" % number for number in range(60)}
    with Producer([server.tcp_address]) as producer:
        producer.publish_many("events", sorted(bodies))
    handled, unseen = set(), set()

    def handle(message):
        threading.Event().wait(HANDLER_TIME)
        handled.add(message.body)

    def on_giving_up(message):
        if message.body not in handled:
            unseen.add(message.body)

    with Consumer(
        "events", "c", handle, nsqd_tcp_addresses=[server.tcp_address],
        max_in_flight=MAX_IN_FLIGHT, on_giving_up=on_giving_up,
        config=Config(max_attempts=2, rdy_share_of_timeout=0),
    ) as consumer:
        wait_until(lambda: unseen or handled == bodies, timeout=100)
        assert consumer.stats().total.expired
    assert (handled, unseen) == (bodies, set())
    assert "lower max_in_flight, or raise workers or msg_timeout" in caplog.text
