"""The options of the data source: what is taken, what is refused, and with which hint."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from nsqclient.config import OPTIONS
from nsqclient.errors import ConfigError, InvalidTopicError
from nsqclient.spark.options import (
    READ_OPTIONS, WRITE_OPTIONS, ReadOptions, WriteOptions, read_options, write_options,
)

GOOD = {"topic": "t", "channel": "c", "nsqd": "127.0.0.1:4150", "storage": "/log"}


def test_committed_segments_are_kept_by_default():
    """Ten minutes, or 256 MiB."""
    found = read_options(GOOD, "stream")
    assert (found.retention_ms, found.retention_bytes) == (600.0, 256 * 1024 * 1024)


@pytest.mark.parametrize("text, value", [
    ("Earliest", "earliest"), (" latest ", "latest"), ("committed", "committed"),
    ('{"v": 2, "shards": {"h:4150": 7}}', {"h:4150": 7})])
def test_a_new_query_may_begin_elsewhere(text, value):
    """With a word, or with an offset as Spark's checkpoint has it."""
    assert read_options({**GOOD, "startingOffsets": text}, "stream").starting_offsets == value


STORED = {"topic": "t", "channel": "c", "storage": "file:///x"}


def test_without_addresses_owners_receive():
    """With them the query does, whatever the storage."""
    assert not read_options(STORED, "stream").is_receiving
    for storage in ("/log", "s3://bucket/x"):
        assert read_options({**GOOD, "storage": storage}, "stream").is_receiving


@pytest.mark.parametrize("options, side, words", [
    ({**STORED, "startingOffsets": '{"v": 3, "shards": {}}'}, "stream", "none of committed"),
    ({**STORED, "startingOffsets": '{"v": 2, "shards": {"h:1": "7"}}'}, "stream", "none of"),
    (STORED, "batch", "storage has no meaning with mode=peek: use mode=replay"),
    ({**STORED, "mode": "drain"}, "batch", "give nsqd"),
    ({**STORED, "mode": "replay", "topic": ""}, "batch", "topic is missing"),
    ({**STORED, "mode": "replay", "startingOffsets": '{"v": 2, "shards": {"h:1": 7}}',
      "endingOffsets": '{"v": 2, "shards": {"h:1": 6}}'}, "batch", "ends before it begins"),
])
def test_what_does_not_fit_together_is_refused(options, side, words):
    """On one line."""
    with pytest.raises(ConfigError, match=words) as failed:
        read_options(options, side)
    assert "\n" not in str(failed.value)


def test_a_time_to_begin_at_is_milliseconds_since_1970():
    """As for Spark's Kafka source."""
    found = read_options({**GOOD, "startingTimestamp": "1769862600123"}, "stream")
    assert found.starting_timestamp == 1769862600.123


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
    assert config.output_buffer_timeout == 0.025


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
    ("storrage", "did you mean storage?"),
    ("maxMessagePerTrigger", "did you mean maxMessagesPerTrigger?"),
    ("authsecret", "did you mean auth_secret?"),
    ("path", "topic"),
    ("includeHeaders", "nsq has none like it: a message of NSQ has no headers"),
    ("endingOffsets", "option endingOffsets has no meaning here: it is for read"),
    ("startingOffsetsByTimestamp", "use startingTimestamp"),
    ("minOffsetsPerTrigger", "use maxTriggerDelayMs"),
    ("maxTriggerDelay", "use maxTriggerDelayMs, in milliseconds"),
    ("maxOffsetsPerTrigger", "use maxMessagesPerTrigger"),
    ("subscribePattern", "use topic"),
    ("kafka.bootstrap.servers", "use nsqd or lookupd"),
    ("kafka.group.id", "use channel"),
    ("kafka.ssl.protocol", "nsq takes none of Kafka's"),
    ("kafka.ssl.truststore.location", "use tls_root_ca_file"),
    ("kafka.max.poll.records", "use maxMessagesPerTrigger"),
    ("kafka.auto.offset.reset", "use startingOffsets"),
    ("kafka.acks", "nsq has none like it: nsqd confirms every message"),
    ("batchSize", "it is for write"),
    ("mode", "it is for read"),
    ("tls_config", "tls_root_ca_file"),
    ("zzzzzz", "docs/topics/spark-reference.rst"),
])
def test_an_unknown_option_names_the_nearest_known_one(name, hint):
    """A typo must not be ignored, as Spark itself does."""
    with pytest.raises(ConfigError, match=hint):
        read_options({**GOOD, name: "1"}, "stream")


def test_all_unknown_options_are_named_at_once():
    """One run is enough to correct them."""
    with pytest.raises(ConfigError, match="'subscribe': use topic .*; unknown option 'chanel'.*;"
                                          " option mode has no meaning here"):
        read_options({**GOOD, "subscribe": "t", "chanel": "c", "mode": "peek"}, "stream")


@pytest.mark.parametrize("change, text", [
    ({"topic": ""}, "option topic is missing"),
    ({"channel": ""}, "option channel is missing"),
    ({"nsqd": "here"}, "nsqd_tcp_address"),
    ({"nsqdhttp": "here"}, "nsqd_http_address"),
    ({"storage": ""}, "option storage is missing"),
    ({"storage": "hdfs://x/y"}, "scheme 'hdfs' is not supported"),
    ({"storage": "data/log"}, "storage 'data/log': give an absolute path"),
    ({"storage": "~/log"}, "give an absolute path"),
    ({"connections": "0"}, "from 1"),
    ({"connections": "two"}, "not a whole number"),
    ({"retentionms": "-1"}, "retentionMs of -1 is too small: from 0"),
    ({"retentionms": "10min"}, "whole number of milliseconds"),
    ({"retentionbytes": "256MiB"}, "not a whole number"),
    ({"startingoffsets": "first"}, "'first' is none of committed, earliest, latest, nor"),
    ({"startingoffsets": '{"t":{"0":23}}'}, 'nor {"v": 2, .* an offset of Spark.s checkpoint'),
    ({"startingoffsets": '{"v": 2, "shards": {"h:1": -1}}'}, "is none of committed"),
    ({"startingoffsets": '{"v": 2, "shards": {"h:1": true}}'}, "is none of committed"),
    ({"startingoffsets": "5"}, "is none of committed"),
    ({"startingtimestamp": "2026-01-31"}, "not a whole number of milliseconds"),
    ({"startingtimestamp": "-1"}, "from 0"),
    ({"startingtimestamp": "1769862600000000"}, "after the year 9999: give milliseconds since"),
    ({"startingtimestamp": "1", "startingoffsets": "latest"}, "startingTimestamp, not both"),
    ({"rollintervalms": "5001"}, "over half of msg_timeout"),
    ({"rollintervalms": "1s"}, "whole number of milliseconds"),
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


def test_a_peek_needs_no_storage_and_a_drain_does():
    """Only what takes messages away must keep them."""
    batch = {name: value for name, value in GOOD.items() if name != "storage"}
    assert read_options(batch, "batch").mode == "peek"
    with pytest.raises(ConfigError, match="option storage is missing"):
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
        write_options({"nsqd": "127.0.0.1:4150", "maxLogBytes": "1"})


@pytest.mark.parametrize("cls, rows", [(ReadOptions, READ_OPTIONS), (WriteOptions, WRITE_OPTIONS)])
def test_every_row_has_a_field_and_an_explanation(cls: Any, rows):
    """The manual is made from these rows."""
    assert len(rows) == len(dataclasses.fields(cls)) - 1
    assert all(row.help and row.sides for row in rows)


def test_options_can_be_pickled():
    """Spark pickles them to executors."""
    found = read_options(GOOD, "stream")
    assert pickle.loads(pickle.dumps(found)) == found
