"""JSON of servers: within the limits it is read as by json.loads, otherwise refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.protocol.peer_json import (
    MAX_CONTAINERS, MAX_DEPTH, InvalidField, InvalidJson, JsonLimitError, JsonReader, read_json,
)
from tests.support.fuzz import fuzz

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats(-1e18, 1e18)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
)


@fuzz
@given(value=_values, ascii_only=st.booleans())
def test_what_a_server_counts_and_names_is_read(value, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read_json(data) == value


@pytest.mark.parametrize("text", [
    "1" * 21, "-" + "1" * 21, "1" * 309, "1" * 400, "1" * 4299, "9" * 5000, "1e20", "-1e20",
    "1e308", "1e309", "-1e999", "1" * 400 + ".5",
])
def test_numbers_of_more_than_20_digits_are_refused(text):
    """No field of NSQ has more, and floats overflow with 309."""
    for data in (text, f'{{"a": [{text}]}}'):
        with pytest.raises(JsonLimitError, match=r"a number of .* digits"):
            read_json(data.encode())


@pytest.mark.parametrize("text", ["18446744073709551615", "-18446744073709551615", "9.9e19"])
def test_the_largest_numbers_are_read(text):
    assert read_json(text.encode()) == json.loads(text)


def test_digits_in_text_are_not_counted():
    """Names may consist of digits."""
    assert read_json(b'{"topic_name": "%s", "depth": 3}' % (b"7" * 64)) == {
        "topic_name": "7" * 64, "depth": 3,
    }


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
def test_depth_is_limited(opening, closing):
    read_json((opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode())
    for depth in (MAX_DEPTH + 1, 500, 100_000):
        with pytest.raises(JsonLimitError, match="levels"):
            read_json((opening * depth + "1" + closing * depth).encode())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_constants_of_python_are_no_json(value):
    """json.loads accepts them, and browsers do not."""
    with pytest.raises(InvalidJson, match="is not JSON"):
        read_json(f'{{"a": {value}}}'.encode())


@pytest.mark.parametrize("data", [
    rb'"\ud800"', rb'{"\uDfff": 1}', rb'["\ude00\ud83d"]', b'"\xed\xa0\x80"', b'"\xff"',
    '"\u00fc"'.encode("utf-16"), b"\xef\xbb\xbf1", b"", b"OK", b"{", b"[1,]", b"'a'",
])
def test_what_is_no_json_in_utf_8_is_refused(data):
    """Half of a surrogate pair cannot be encoded."""
    with pytest.raises(InvalidJson):
        read_json(data)


def test_a_whole_surrogate_pair_is_one_character():
    """JSON in ASCII encodes most emoji as pairs."""
    assert read_json(rb'"\ud83d\ude00"') == "\U0001f600"


def test_size_is_limited():
    """So is the number of objects and lists, because each takes much memory."""
    assert read_json(b'"1234"', 6) == "1234"
    with pytest.raises(JsonLimitError, match="more than 6 bytes"):
        read_json(b'"12345"', 6)
    with pytest.raises(JsonLimitError, match="objects and lists"):
        read_json(b"[" + b"{}," * MAX_CONTAINERS + b"1]")


def _reader(**data):
    return JsonReader(data, "it")


@pytest.mark.parametrize("data", [None, [], "x", 1, True])
def test_a_reader_takes_only_an_object(data):
    with pytest.raises(InvalidField, match="it is no JSON object"):
        JsonReader(data, "it")


@pytest.mark.parametrize("read, bad", [
    ("text", 1), ("number", "1"), ("number", True), ("number", 1.5), ("flag", 1),
    ("texts", "x"), ("texts", [1]), ("flags", [0]), ("objects", {}), ("objects", [1]),
    ("object", []), ("items", {}),
])
def test_a_field_of_the_wrong_type_is_named_in_the_error(read, bad):
    with pytest.raises(InvalidField, match=r"it\.x"):
        getattr(_reader(x=bad), read)("x")


@pytest.mark.parametrize("data", [{}, {"x": None}])
def test_a_missing_field_and_null_are_empty(data):
    """Older servers have fewer fields, and Go encodes an empty list as null."""
    fields = _reader(**data)
    assert fields.text("x") == "" and fields.number("x") == 0 and fields.flag("x") is False
    assert fields.texts("x") == fields.flags("x") == () and fields.objects("x") == []
    assert fields.object("x").text("y") == "" and not fields.has("x")
