"""The options of the data source: accepted ones, rejected ones, and the hints."""

import pytest

from nsqclient.config import OPTIONS
from nsqclient.errors import ConfigError
from nsqclient.spark.options import read_options, write_options

STORED = {"topic": "t", "channel": "c", "storage": "file:///x"}
GOOD = {**STORED, "nsqd": "127.0.0.1:4150"}


@pytest.mark.parametrize("text, value", [
    ("Earliest", "earliest"), (" latest ", "latest"), ("committed", "committed"),
    ('{"v": 2, "log": "t/c", "shards": {"h:4150": 7}}', {"h:4150": 7}),
    ('{"shards": {"h:4150": 7}}', {"h:4150": 7})])
def test_a_new_query_may_begin_elsewhere(text, value):
    assert read_options({**GOOD, "startingOffsets": text}, "stream").starting_offsets == value


def test_names_ignore_case():
    """Spark passes names in lower case; users write camel case."""
    found = read_options({**GOOD, "MaxMessagesPerTrigger": "7000"}, "stream")
    assert found.max_messages_per_trigger == 7000
    assert found.topic == "t" and found.nsqd == ("127.0.0.1:4150",)


def test_options_of_the_core_keep_names_and_units():
    """Durations are Go durations, and names may have hyphens."""
    found = read_options({**GOOD, "msg-timeout": "1m", "max_in_flight": "99"}, "stream")
    assert found.config.msg_timeout == 60.0
    assert found.config.max_in_flight == 99


def test_a_source_has_defaults_of_its_own():
    """One message in flight would be too slow."""
    found = read_options(GOOD, "stream")
    assert found.config.max_in_flight == 10_000 and found.config.msg_timeout == 10.0
    assert (found.retention_ms, found.retention_bytes) == (600.0, 256 * 1024 * 1024)


def test_every_option_of_the_core_is_taken():
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
    ("storrage", "did you mean storage?"),
    ("authsecret", "did you mean auth_secret?"),
    ("endingOffsets", "option endingOffsets has no meaning here: it is for read"),
    ("kafka.ssl.protocol", "nsq takes none of Kafka's"),
    ("kafka.bootstrap.servers", "use nsqd or lookupd"),
    ("batchSize", "it is for write"),
    ("tls_config", "tls_root_ca_file"),
    ("zzzzzz", "docs/topics/spark-reference.rst"),
])
def test_an_unknown_option_names_the_nearest_known_one(name, hint):
    """Spark itself ignores typos."""
    with pytest.raises(ConfigError, match=hint):
        read_options({**GOOD, name: "1"}, "stream")


def test_all_unknown_options_are_named_at_once():
    with pytest.raises(ConfigError, match="'subscribe': use topic .*; unknown option 'chanel'.*;"
                                          " option mode has no meaning here"):
        read_options({**GOOD, "subscribe": "t", "chanel": "c", "mode": "peek"}, "stream")


@pytest.mark.parametrize("change, text", [
    ({"topic": ""}, "option topic is missing"),
    ({"channel": ""}, "option channel is missing"),
    ({"nsqd": "here"}, "nsqd_tcp_address"),
    ({"nsqdhttp": "here"}, "nsqd_http_address"),
    ({"storage": ""}, "option storage is missing"),
    ({"storage": "~/log"}, "give an absolute path"),
    ({"connections": "two"}, "not a whole number"),
    ({"retentionms": "-1"}, "retentionMs of -1 is too small: from 0"),
    ({"retentionms": "10min"}, "whole number of milliseconds"),
    ({"startingoffsets": "first"}, "'first' is none of committed, earliest, latest, nor"),
    ({"maxMessagesPerTrigger": "100"}, "of 100 is less than one segment, which has up to 5000 rows"
     ".*give at least 5000, or a max_in_flight of at most 200"),
    ({"startingoffsets": '{"v": 2, "log": "a/c", "shards": {}}'},
     "option startingOffsets: the offset belongs to a/c, the query reads t/c"),
    ({"startingoffsets": '{"t":{"0":23}}'}, 'nor {"v": 2, .* an offset of Spark.s checkpoint'),
    ({"startingoffsets": '{"v": 2, "shards": {"h:1": -1}}'}, "is none of committed"),
    ({"startingoffsets": '{"v": 2, "shards": {"h:1": true}}'}, "is none of committed"),
    ({"startingtimestamp": "1769862600000000"}, "after the year 9999: give milliseconds since"),
    ({"startingtimestamp": "1", "startingoffsets": "latest"}, "startingTimestamp, not both"),
    ({"rollintervalms": "5001"}, "over half of msg_timeout"),
    ({"failondataloss": "yes"}, "not true or false"),
    ({"max_in_flight": "0"}, "at least 1"),
    ({"heartbeat_interval": "-1"}, "heartbeats"),
    ({"tls_root_ca_file": "x"}, "tls_v1"),
    ({"startingoffsets": '{"v": 3, "shards": {}}'}, "none of committed"),
])
def test_bad_values_are_refused(change, text):
    with pytest.raises(ConfigError, match=text) as failed:
        read_options({**GOOD, **change}, "stream")
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("options, words", [
    (STORED, "storage has no meaning with mode=peek: use mode=replay"),
    ({**STORED, "mode": "drain"}, "give nsqd"),
    ({**STORED, "mode": "drain", "endingOffsets": "latest"}, "set mode=replay"),
    ({**STORED, "mode": "replay", "topic": ""}, "topic is missing"),
    ({**STORED, "mode": "replay", "nsqd": "h:1"}, "have no meaning with mode=replay"),
    ({**STORED, "mode": "replay", "endingOffsets": "earliest"}, "is none of latest, nor"),
    ({**STORED, "mode": "replay", "endingTimestamp": "5", "endingOffsets": "latest"},
     "give endingOffsets or endingTimestamp, not both"),
    ({**STORED, "mode": "replay", "startingTimestamp": "5", "endingTimestamp": "4"},
     "ends before it begins"),
    ({**STORED, "mode": "replay", "startingOffsets": '{"v": 2, "shards": {"h:1": 7}}',
      "endingOffsets": '{"v": 2, "shards": {"h:1": 6}}'}, "ends before it begins"),
    *[({**GOOD, "mode": "drain", "snapshot": name}, "plain name")  # it becomes a folder
      for name in ("../other", "a/b", ".hidden")],
])
def test_what_a_batch_read_cannot_have_is_refused(options, words):
    with pytest.raises(ConfigError, match=words) as failed:
        read_options(options, "batch")
    assert "\n" not in str(failed.value)


def test_write_options_are_checked():
    found = write_options({"nsqd": "127.0.0.1:4150", "deferMs": "1500"})
    assert found.defer_ms == 1.5 and found.topic == ""
    with pytest.raises(ConfigError, match="nsqd_max_body_size"):
        write_options({"nsqd": "127.0.0.1:4150", "batchBytes": "99999999"})
    with pytest.raises(ConfigError, match="it is for readStream"):
        write_options({"nsqd": "127.0.0.1:4150", "maxLogBytes": "1"})
