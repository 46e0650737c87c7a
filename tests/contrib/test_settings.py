"""The settings of all frameworks: every error is found, with a hint; one producer a process."""

import contextlib
import re

import pytest

from nsqclient import ConfigError, Producer
from nsqclient.contrib.settings import ProcessProducer, Settings
from tests.support.processes import in_child, start_threads

NSQD = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}


@pytest.mark.parametrize(("mapping", "words"), [
    (None, "missing or not a dict: write NSQCLIENT = "),
    ({"NSQD_TCP_ADRESSES": []} | NSQD, "did you mean NSQD_TCP_ADDRESSES?"),
    ({"nsqd_tcp_addresses": []} | NSQD, "did you mean NSQD_TCP_ADDRESSES?"),
    ({}, "give nsqd_tcp_addresses or lookupd_http_addresses"),
    (NSQD | {"OPTIONS": []}, "must be a dict"),
    (NSQD | {"OPTIONS": {"max_inflight": 1}}, "did you mean max_in_flight?"),
    (NSQD | {"OPTIONS": {"publish_timeout": "soon"}}, "soon"),
    (NSQD | {"MAX_IN_FLIGHT": 5}, 'it belongs into "OPTIONS": {"max_in_flight": ...}'),
    (NSQD | {"OPTIONS": {"sticky": True}}, 'it belongs into "PRODUCER": {"sticky": ...}'),
    (NSQD | {"PRODUCER": {"stikcy": True}}, "did you mean sticky?"),
    (NSQD | {"PRODUCER": {"max_pending": 0}}, "max_pending"),
    (NSQD | {"MIDDLEWARE": "shop.errors"}, "must be a list of dotted paths"),
    (NSQD | {"MIDDLEWARE": [1]}, "must be a list of dotted paths"),
])
def test_a_wrong_setting_is_reported_with_a_hint(mapping, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        Settings.read(mapping)


def test_options_may_be_text():
    settings = Settings.read(NSQD | {"OPTIONS": {
        "max_in_flight": "7", "publish_timeout": "1m30s", "tls_v1": "true", "client_id": "me",
        "msg_timeout": 30,
    }})
    config = settings.config
    assert (config.max_in_flight, config.publish_timeout, config.tls_v1) == (7, 90.0, True)
    assert (config.client_id, config.msg_timeout) == ("me", 30.0)


def test_consumers_discover_and_producers_use_the_given_nsqd():
    settings = Settings.read(NSQD | {"LOOKUPD_HTTP_ADDRESSES": ["127.0.0.1:4161"]})
    assert settings.consumer_addresses() == {"lookupd_http_addresses": ("127.0.0.1:4161",)}
    producer = settings.make_producer()
    assert producer.stats().known == ["127.0.0.1:4150"]
    assert producer.close(0)


@pytest.fixture
def holder(nsqd):
    holder = ProcessProducer(lambda: Producer([nsqd.tcp_address]))
    yield holder
    holder.close()


def test_all_threads_get_the_same_producer(holder):
    seen = []
    for thread in start_threads(8, lambda: seen.append(holder.get())):
        thread.join()
    assert len(seen) == 8 and len(set(map(id, seen))) == 1


def test_a_forked_child_publishes_with_its_own_producer(holder, nsqd):
    with holder._lock:
        assert in_child(lambda: holder.get().publish("events", b"child")) == 0
    holder.get().publish("events", b"parent")
    assert in_child(lambda: holder.get().publish("events", b"child")) == 0
    assert len(nsqd.messages("events")) == 3


def test_middleware_is_imported_by_its_path():
    """Only by the worker, not by a process of the web server."""
    settings = Settings.read(NSQD | {"MIDDLEWARE": ["contextlib.nullcontext", print]})
    assert settings.load_middleware() == [contextlib.nullcontext, print]
    settings = Settings.read(NSQD | {"MIDDLEWARE": ["contextlib.no_such"]})
    with pytest.raises(ConfigError, match="middleware 'contextlib.no_such': .* has no 'no_such'"):
        settings.load_middleware()
