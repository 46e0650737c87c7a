"""Flask: the extension's producer, its handlers, and its command."""

import pytest
from flask import Flask, current_app, g

from nsqclient import BatchHandler, ConfigError, DeadLetter, DeadLetterTopic, GiveUp
from nsqclient.contrib.flask import NSQ
from tests.support.waiting import wait_until


def make_app(nsq: NSQ, address: str = "127.0.0.1:1") -> Flask:
    app = Flask("shop")
    app.config["NSQCLIENT"] = {"NSQD_TCP_ADDRESSES": [address]}
    nsq.init_app(app)
    return app


@pytest.fixture
def nsq():
    return NSQ()


@pytest.fixture
def app(nsq, nsqd):
    app = make_app(nsq, nsqd.tcp_address)
    yield app
    assert nsq.close(app)


def test_a_view_publishes(nsq, app, nsqd):
    app.add_url_rule("/", view_func=lambda: nsq.publish("events", b"x") or "ok")
    client = app.test_client()
    assert [client.get("/").text for _ in range(2)] == ["ok", "ok"]
    assert [m.body for m in nsqd.messages("events")] == [b"x", b"x"]
    with app.app_context():
        assert nsq.producer is nsq.producer


def test_two_apps_have_a_producer_each(nsq, app, nsqd, nsqd_factory):
    other = nsqd_factory()
    second = make_app(nsq, other.tcp_address)
    for each, body in ((app, b"first"), (second, b"second")):
        with each.app_context():
            nsq.publish("events", body)
    assert [m.body for m in nsqd.messages("events")] == [b"first"]
    assert [m.body for m in other.messages("events")] == [b"second"]
    assert nsq.close(second)


def test_an_app_without_the_extension_raises_an_error(nsq):
    with Flask("shop").app_context(), pytest.raises(RuntimeError, match="init_app"):
        nsq.publish("events", b"x")


def test_a_wrong_setting_fails_at_the_start(nsq):
    with pytest.raises(ConfigError, match="NSQCLIENT"):
        nsq.init_app(Flask("shop"))


def test_a_handler_has_an_app_context_of_its_own(nsq, app, nsqd):
    seen, cleaned = [], []
    app.teardown_appcontext(lambda exc: cleaned.append(exc))

    @nsq.handler("events", channel="c", workers=2)
    def handler(message):
        assert current_app.name == "shop" and "mark" not in g
        g.mark = True
        seen.append(message.body)

    nsqd.publish_many("events", [b"1", b"2", b"3"])
    group = nsq.make_group(app)
    group.start()
    wait_until(lambda: len(seen) == 3)
    assert all(group.stop(5)) and cleaned == [None] * 3


def test_a_handler_has_a_retry_policy_and_dead_letters(nsq, app, nsqd):
    asked = []

    def retry(message, exception):
        asked.append(current_app.name)
        return GiveUp("no order")

    @nsq.handler("orders", channel="c", retry=retry,
                 on_giving_up=DeadLetterTopic(nsq, "orders.dead"))
    def handler(message):
        raise ValueError(message.body)

    nsqd.publish("orders", b"x")
    group = nsq.make_group(app)
    group.start()
    wait_until(lambda: nsqd.stats("orders.dead")["topics"] and nsqd.messages("orders.dead"))
    assert all(group.stop(5)) and asked == ["shop"]
    [message] = nsqd.messages("orders.dead")
    assert DeadLetter.parse(message.body).reason == "no order"


def test_a_handler_may_have_several_topics_and_batches(nsq, app, nsqd):
    seen = []
    nsq.handler("a", "b", channel="c")(BatchHandler(
        lambda batch: seen.extend(current_app.name for _ in batch), size=2, max_wait=0.05))
    for topic in ("a", "b"):
        nsqd.publish_many(topic, [b"1", b"2", b"3"])
    group = nsq.make_group(app)
    assert [consumer.topic for consumer in group.consumers] == ["a", "b"]
    group.start()
    wait_until(lambda: len(seen) == 6)
    assert all(group.stop(5))


@pytest.mark.parametrize(("words", "said"), [
    ([], "no handler is registered: write @nsq.handler"),
    (["--topic", "refunds"], "no handler is registered for refunds"),
])
def test_the_command_needs_a_handler(nsq, app, words, said):
    if words:
        nsq.handler("orders", channel="c")(lambda message: None)
    result = app.test_cli_runner().invoke(args=["nsq", "consume", *words])
    assert result.exit_code == (2 if words else 1) and said in result.output


def test_a_factory_that_runs_twice_registers_its_handlers_anew(nsq):
    def create_app() -> Flask:
        @nsq.handler("orders", channel="c")
        def handle(message):
            """Ignore the message."""

        return make_app(nsq)

    create_app()
    app = create_app()
    assert [c.topic for c in nsq.make_group(app).consumers] == ["orders"]
