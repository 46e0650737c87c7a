"""nsq_to_nsq by value: the JSON filter, the choice of destinations, invalid flags."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient import Config, Consumer, PublishNotSentError, PublishUnknownError
from nsqclient.cli import main
from nsqclient.cli import nsq_to_nsq
from nsqclient.cli.lines import NotAnObject, parse_object
from nsqclient.cli.nsq_to_nsq import Destinations, JsonFilter, matches
from nsqclient.devserver import Nsqd, Nsqlookupd
from nsqclient.testing import make_message
from tests.support.docs.tool_runs import end, tool
from tests.support.servers.http_api import HttpApi

ADDRESSES = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]


@pytest.mark.parametrize("text", [
    ' { } ', '\t{ "a" : 1 ,\r\n"b":[1, {"c" :2}] }\n', '{"a":1,"a":2}',
    '{"a\\n":"\\u00e9", "\u00e9":"x"}', '{"":null}',
])
def test_objects_are_read_as_json_reads_them(text):
    assert parse_object(text.encode()) == json.loads(text)


@pytest.mark.parametrize("body", [
    b"", b"[]", b"null", b"{", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":1,}', b"{a:1}", b'{"a":1}x',
    b'{"a":NaN}', b'{"a":1e400}', b'{"a":01}', b'{1:2}', b"[" * 100_000, b'{"a":' + b"[" * 100_000,
])
def test_a_body_that_is_no_json_object_is_rejected(body):
    with pytest.raises(NotAnObject):
        parse_object(body)


@given(st.dictionaries(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(), lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=5)))
def test_any_object_survives_a_whitelist_of_all_its_fields(value):
    body = json.dumps(value).encode()
    shown = JsonFilter("", None, list(value) or ["none"])(body)
    assert json.loads(shown) == value and list(json.loads(shown)) == sorted(value)


@pytest.mark.parametrize(("field", "value", "whitelist", "body", "passed"), [
    ("", None, [], b"any bytes", b"any bytes"),
    ("a", None, [], b'{ "a":null}', b'{ "a":null}'),
    ("a", None, [], b'{"b":1}', None),
    ("a", "1", [], b'{"b":1}', None),
    ("a", "1", [], b'{"a":1.0}', b'{"a":1.0}'),
    ("a", "1", [], b'{"a":2}', None),
    ("", None, ["b", "a", "b"], b'{"b": 1, "c":2, "a": [1, 2]}', b'{"a":[1,2],"b":1}'),
    ("", None, ["x"], b'{"a":1}', b"{}"),
    ("a", "x", ["b"], b'{"a":"x","b":"\\u00e9<>&"}', b'{"b":"\xc3\xa9<>&"}'),
    ("", None, ["n"], b'{"n":12345678901234567890}', b'{"n":12345678901234567890}'),
    ("", None, ["a\n"], b'{"a\\n":1}', b'{"a\\n":1}'),
])
def test_the_filter_passes_objects_and_fields_that_match(field, value, whitelist, body, passed):
    assert JsonFilter(field, value, whitelist)(body) == passed


@pytest.mark.parametrize(("value", "wanted", "same"), [
    ("1", "1", True), ("a", "b", False), (1, "1", True), (1, "1.0", True), (1.5, "1.50", True),
    (1, "x", False), (True, "true", False), (True, "1", False), (None, "null", False),
    ([], "[]", False), (12345678901234567890, "12345678901234567890", True),
    (12345678901234567891, "12345678901234567890", False), (10**400, "1.5", False),
])
def test_strings_match_exactly_and_numbers_by_value(value, wanted, same):
    assert matches(value, wanted) is same


@pytest.fixture
def make():
    made = []

    def build(mode):
        made.append(Destinations(ADDRESSES, mode, Config(), 0))
        return made[-1]

    yield build
    for destinations in made:
        destinations.close()


def test_each_nsqd_is_a_destination_that_pauses_after_a_failure(make):
    destinations = make("round-robin")
    assert sorted(destinations.order()) == ADDRESSES
    destinations.report(ADDRESSES[0], False, 0.0)
    assert {destinations.order()[-1] for _ in range(6)} == {ADDRESSES[0]}
    destinations.report(ADDRESSES[0], True, 0.1)
    assert {destinations.order()[0] for _ in range(6)} == set(ADDRESSES)


@pytest.mark.parametrize("error", [
    None, PublishUnknownError("no answer"), PublishNotSentError("no nsqd"),
])
def test_a_message_is_finished_when_it_is_stored_and_only_then(error):
    message = make_message(b"x")

    class Destinations:
        def publish(self, *arguments):
            assert not message.has_responded
            return self.wait

        def wait(self):
            assert not message.has_responded
            if error is not None:
                raise error

    nsq_to_nsq.Copier("t", JsonFilter("", None, []), Destinations(), Config())([message])
    assert message.finished is (error is None) and (message.requeued is None) is (error is None)


@pytest.mark.parametrize("words", [
    ["--nsqd-tcp-address=localhost:5", "--destination-nsqd-tcp-address=127.0.0.1:5"],
    ["--lookupd-http-address=http://127.0.0.1:5", "--destination-lookupd-http-address=localhost:5",
     "--destination-topic=t"],
])
def test_a_topic_is_not_copied_onto_itself(words, capsys):
    assert main(["nsq_to_nsq", "--topic=t", *words]) == 2
    assert "each message would be copied again without end" in capsys.readouterr().err


def test_a_source_that_is_the_destination_ends_the_tool_before_a_copy(leak_guard, capsys):
    with Nsqlookupd() as lookupd, Nsqd(lookupd_tcp_addresses=[lookupd.tcp_address]) as nsqd:
        nsqd.publish("t", b"x")
        assert main([
            "nsq_to_nsq", "--topic=t", f"--lookupd-http-address={lookupd.http_address}",
            f"--destination-nsqd-tcp-address={nsqd.tcp_address}"]) == 1
        assert "copied again without end" in capsys.readouterr().err
        assert HttpApi(nsqd.http_address).stats("t")["message_count"] == 1


def test_a_message_over_our_default_limit_is_copied(leak_guard):
    body = b"x" * 2_000_000
    with Nsqd(max_msg_size=10_000_000) as source, Nsqd(max_msg_size=10_000_000) as destination:
        source.publish("t", body)
        with tool("ours", "nsq_to_nsq", "--topic=t", f"--nsqd-tcp-address={source.tcp_address}",
                  f"--destination-nsqd-tcp-address={destination.tcp_address}") as process:
            with Consumer("t", "c", nsqd_tcp_addresses=[destination.tcp_address]) as consumer:
                assert next(consumer.messages(timeout=20)).body == body
            assert end(process) == 0
