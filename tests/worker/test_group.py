"""Groups of consumers: topics, start and stop, and log lines."""

import contextlib
import threading

import pytest

from nsqclient import BatchHandler, Config, ConfigError
from nsqclient.worker.group import ConsumerGroup, add_all
from nsqclient.worker.registry import register
from tests.support.waiting import wait_until


def handle(message):
    """A handler that has a name."""


def group_of(nsqd=None, **arguments):
    address = nsqd.tcp_address if nsqd else "127.0.0.1:1"
    return ConsumerGroup(Config(), {"nsqd_tcp_addresses": [address]}, **arguments)


@pytest.mark.parametrize("batched", [False, True])
def test_each_message_is_handled_inside_the_middleware(nsqd, batched):
    entered, inside, seen = [], threading.local(), []

    @contextlib.contextmanager
    def around(handling):
        entered.append(handling.topic)
        inside.value = True
        yield
        inside.value = False

    def handler(what):
        assert inside.value
        seen.extend(message.body for message in (what if batched else [what]))

    chosen = BatchHandler(handler, size=1) if batched else handler
    group = group_of(nsqd, middleware=[around])
    for topic in ("orders", "refunds"):
        group.add(register(topic, "c", chosen, workers=2))
        nsqd.publish_many(topic, [topic.encode()] * 3)
    group.start()
    wait_until(lambda: len(seen) == 6)
    assert all(group.stop(5)) and sorted(set(seen)) == [b"orders", b"refunds"]
    assert sorted(entered) == ["orders"] * 3 + ["refunds"] * 3


@pytest.mark.parametrize(("of_worker", "of_handler", "kept"), [
    ({"max_in_flight": 1}, {}, 1), ({"max_in_flight": 8}, {}, 8), ({}, {"max_in_flight": 2}, 2),
])
def test_a_max_in_flight_that_is_given_is_kept(of_worker, of_handler, kept):
    group = ConsumerGroup(Config(**of_worker), {"nsqd_tcp_addresses": ["127.0.0.1:4150"]})
    consumer = group.add(register("orders", "c", handle, workers=5, **of_handler))
    assert consumer.config.has_max_in_flight() and consumer.max_in_flight == kept


@pytest.mark.parametrize("options", [{}, {"ordered": True}])
def test_workers_alone_give_no_max_in_flight(options):
    """A topic with more partitions than workers raises it: each partition needs one."""
    group = ConsumerGroup(Config(), {"lookupd_http_addresses": ["127.0.0.1:4161"]})
    consumer = group.add(register("orders", "c", handle, workers=5, **options))
    assert not consumer.config.has_max_in_flight() and consumer.max_in_flight >= 5


def test_a_duration_that_may_be_milliseconds_is_warned_about_once():
    """By the decorator, whose line is shown; the group warns no more."""
    with pytest.warns(UserWarning, match="For milliseconds"):
        registration = register("orders", "c", handle, msg_timeout=60000)
    assert group_of().add(registration).config.msg_timeout == 60000


def test_the_banner_says_what_is_not_default():
    group = ConsumerGroup(
        Config(auth_secret="s3cret", dial_timeout=9), {"nsqd_tcp_addresses": ["127.0.0.1:4150"]})
    group.add(register("orders", "billing", handle, workers=8, max_in_flight=50, max_attempts=3))
    assert group.banner() == [
        f"consuming orders on channel billing with {__name__}.handle: 8 workers,"
        " max_in_flight 50, max_attempts 3",
        "from nsqd 127.0.0.1:4150",
        "options: dial_timeout 9.0, auth_secret ...",
    ]


def test_an_error_of_a_consumer_names_its_handler():
    registration = register("orders", "c", BatchHandler(print), ordered=True)
    with pytest.raises(ConfigError, match="orders/c: a BatchHandler cannot keep an order"):
        group_of().add(registration)


def test_a_channel_has_one_handler():
    group = group_of()
    group.add(register("orders", "c", handle))
    with pytest.raises(ConfigError, match="orders/c has two handlers"):
        group.add(register("orders", "c", print, name="print"))


def test_topics_choose_among_the_registrations():
    both = [register("orders", "c", handle), register("refunds", "c", handle)]
    group = group_of()
    add_all(group, both, ["refunds"])
    assert [consumer.topic for consumer in group.consumers] == ["refunds"]
    with pytest.raises(ConfigError, match="no handler is registered for mails"):
        add_all(group_of(), both, ["mails"])
    with pytest.raises(ConfigError, match="no handler is registered$"):
        add_all(group_of(), [])
