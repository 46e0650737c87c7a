"""The options of the data source: what is taken, what is refused, and with which hint."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from nsqclient.config import OPTIONS
from nsqclient.errors import ConfigError, InvalidTopicError
from nsqclient.spark.options import (
    READ_OPTIONS,
    WRITE_OPTIONS,
    ReadOptions,
    WriteOptions,
    read_options,
    write_options,
)

GOOD = {"topic": "t", "channel": "c", "nsqd": "127.0.0.1:4150", "spooldir": "/spool"}


def test_names_ignore_case():
    """Spark hands names over in lower case; users write camel case."""
    found = read_options({**GOOD, "MaxMessagesPerTrigger": "7"}, "stream")
    assert found.max_messages_per_trigger == 7
    assert found.topic == "t" and found.nsqd == ("127.0.0.1:4150",)


def test_options_of_the_core_keep_names_and_units():
    """Durations are Go durations, and a name may have hyphens."""
    found = read_options({**GOOD, "msg-timeout": "1m", "max_in_flight": "99"}, "stream")
    assert found.config.msg_timeout == 60.0
    assert found.config.max_in_flight == 99


def test_a_source_has_defaults_of_its_own():
    """One message in flight would be of no use here."""
    config = read_options(GOOD, "stream").config
    assert config.max_in_flight == 10_000 and config.msg_timeout == 10.0


def test_every_option_of_the_core_is_taken():
    """TLS, authentication and compression among them; a ready context alone is no text."""
    for name, option in OPTIONS.items():
        if option.kind in ("context", "strategy") or name in ("tls_cert", "tls_key"):
            continue
        text = {"str": "", "bool": "false"}.get(option.kind, f"{option.default}")
        if option.kind == "duration":
            text = f"{option.default}s"
        if name == "tls_min_version":
            text = "tls1.3"
        if name == "max_in_flight":
            text = "5"
        assert read_options({**GOOD, name: text}, "stream").config is not None


@pytest.mark.parametrize("name, hint", [
    ("maxInFlight", "max_in_flight"),
    ("msgTimeoutMs", "msg_timeout, a Go duration"),
    ("spoolDri", "did you mean spoolDir?"),
    ("maxMessagePerTrigger", "did you mean maxMessagesPerTrigger?"),
    ("authsecret", "did you mean auth_secret?"),
    ("startingOffsets", "begins where it stands"),
    ("path", "topic"),
    ("batchSize", "it is for write"),
    ("mode", "it is for read"),
    ("tls_config", "tls_root_ca_file"),
    ("zzzzzz", "docs/topics/spark.rst"),
])
def test_an_unknown_option_names_the_nearest_known_one(name, hint):
    """A typo must not be ignored, as Spark itself does."""
    with pytest.raises(ConfigError, match=hint):
        read_options({**GOOD, name: "1"}, "stream")


@pytest.mark.parametrize("change, text", [
    ({"topic": ""}, "option topic is missing"),
    ({"channel": ""}, "option channel is missing"),
    ({"nsqd": ""}, "give nsqd"),
    ({"nsqd": "here"}, "nsqd_tcp_address"),
    ({"nsqdhttp": "here"}, "nsqd_http_address"),
    ({"spooldir": ""}, "option spoolDir is missing"),
    ({"spooldir": "hdfs://x/y"}, "a file system that is mounted"),
    ({"connections": "0"}, "from 1"),
    ({"connections": "two"}, "not a whole number"),
    ({"rollintervalms": "5001"}, "over half of msg_timeout"),
    ({"rollintervalms": "1s"}, "whole number of milliseconds"),
    ({"transport": "pigeon"}, "auto, inline, file"),
    ({"failondataloss": "yes"}, "not true or false"),
    ({"max_in_flight": "0"}, "at least 1"),
    ({"heartbeat_interval": "-1"}, "heartbeats"),
    ({"tls_root_ca_file": "x"}, "tls_v1"),
])
def test_bad_values_are_refused(change, text):
    """Each error names the option and what it takes."""
    with pytest.raises(ConfigError, match=text):
        read_options({**GOOD, **change}, "stream")


def test_a_bad_topic_is_refused():
    """With the error of the core."""
    with pytest.raises(InvalidTopicError):
        read_options({**GOOD, "topic": "no spaces"}, "stream")


def test_a_peek_needs_no_spool_and_a_drain_does():
    """Only what takes messages away must keep them."""
    batch = {name: value for name, value in GOOD.items() if name != "spooldir"}
    assert read_options(batch, "batch").mode == "peek"
    with pytest.raises(ConfigError, match="spoolDir"):
        read_options({**batch, "mode": "drain"}, "batch")


@pytest.mark.parametrize("name", ["../other", "a/b", ".hidden"])
def test_a_snapshot_is_a_plain_name(name):
    """It becomes a folder."""
    with pytest.raises(ConfigError, match="plain name"):
        read_options({**GOOD, "mode": "drain", "snapshot": name}, "batch")


def test_write_options_are_checked():
    """The topic may come from a column; the size of an MPUB has nsqd's limit."""
    found = write_options({"nsqd": "127.0.0.1:4150", "deferMs": "1500"})
    assert found.defer_ms == 1.5 and found.topic == ""
    with pytest.raises(ConfigError, match="nsqd_max_body_size"):
        write_options({"nsqd": "127.0.0.1:4150", "batchBytes": "99999999"})
    with pytest.raises(ConfigError, match="it is for readStream"):
        write_options({"nsqd": "127.0.0.1:4150", "maxSpoolBytes": "1"})


@pytest.mark.parametrize("cls, rows", [(ReadOptions, READ_OPTIONS), (WriteOptions, WRITE_OPTIONS)])
def test_every_row_has_a_field_and_an_explanation(cls: Any, rows):
    """The manual is made from these rows."""
    assert len(rows) == len(dataclasses.fields(cls)) - 1
    assert all(row.help and row.sides for row in rows)


def test_options_travel():
    """Spark pickles them to executors."""
    found = read_options(GOOD, "stream")
    assert pickle.loads(pickle.dumps(found)) == found
