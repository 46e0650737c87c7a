"""The settings that all frameworks share: everything wrong is found, with what to do."""

from __future__ import annotations

import pytest

from nsqclient import ConfigError
from nsqclient.contrib.settings import Settings, find_problems

NSQD = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}


@pytest.mark.parametrize(("mapping", "code", "words"), [
    (None, "shape", "must be a dict"),
    ({"NSQD_TCP_ADRESSES": []} | NSQD, "key", "did you mean NSQD_TCP_ADDRESSES?"),
    ({"nsqd_tcp_addresses": []} | NSQD, "key", "did you mean NSQD_TCP_ADDRESSES?"),
    ({}, "addresses", "lists of host:port"),
    ({"NSQD_TCP_ADDRESSES": "127.0.0.1:4150"}, "addresses", "must be a list"),
    ({"NSQD_TCP_ADDRESSES": ["127.0.0.1"]}, "addresses", "127.0.0.1"),
    (NSQD | {"OPTIONS": []}, "options", "must be a dict"),
    (NSQD | {"OPTIONS": {"max_inflight": 1}}, "options", "did you mean max_in_flight?"),
    (NSQD | {"OPTIONS": {"max_in_flight": -1}}, "options", "out of range"),
    (NSQD | {"OPTIONS": {"publish_timeout": "soon"}}, "options", "soon"),
    (NSQD | {"PRODUCER": 1}, "producer", "must be a dict"),
    (NSQD | {"PRODUCER": {"stikcy": True}}, "producer", "did you mean sticky?"),
    (NSQD | {"PRODUCER": {"max_pending": 0}}, "producer", "max_pending"),
])
def test_a_wrong_setting_is_named_with_what_to_do(mapping, code, words):
    """Each problem has a kind, a text and a hint, and reading raises it."""
    (problem,) = find_problems(mapping)
    assert problem.code == code and words in f"{problem.text} {problem.hint}"
    with pytest.raises(ConfigError):
        Settings.read(mapping)


def test_all_problems_are_found_at_once():
    """One look names everything."""
    problems = find_problems({"X": 1, "OPTIONS": {"y": 1}, "PRODUCER": {"z": 1}})
    assert {p.code for p in problems} == {"key", "addresses", "options", "producer"}


def test_options_may_be_text():
    """Environment variables are text: durations, numbers and flags are read from it."""
    settings = Settings.read(NSQD | {"OPTIONS": {
        "max_in_flight": "7", "publish_timeout": "1m30s", "tls_v1": "true", "client_id": "me",
        "msg_timeout": 30,
    }})
    config = settings.config
    assert (config.max_in_flight, config.publish_timeout, config.tls_v1) == (7, 90.0, True)
    assert (config.client_id, config.msg_timeout) == ("me", 30.0)


def test_consumers_discover_and_producers_use_the_nsqd_that_is_named():
    """With both kinds of address each side takes the one that suits it."""
    settings = Settings.read(NSQD | {"LOOKUPD_HTTP_ADDRESSES": ["127.0.0.1:4161"]})
    assert settings.consumer_addresses() == {"lookupd_http_addresses": ("127.0.0.1:4161",)}
    producer = settings.make_producer()
    assert producer.stats().known == ["127.0.0.1:4150"]
    assert producer.close(0)
