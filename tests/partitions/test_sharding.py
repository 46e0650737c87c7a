"""Sharding against values computed with the other clients' libraries."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.errors import ConfigError, InvalidMessageError
from nsqclient.partitions.sharding import (
    RoundRobin,
    choose_sharding,
    java,
    murmur3,
    partition_of,
)
from tests.support.fuzz import fuzz

COUNTS = (2, 3, 4, 10, 16)
#: Key -> partitions of each count, from spaolacci/murmur3.
MURMUR3 = {
    "": (0, 0, 0, 0, 0),
    "a": (0, 2, 2, 0, 2),
    "hello": (1, 1, 3, 1, 7),
    "order-1": (1, 1, 1, 3, 1),
    "order-2": (1, 2, 3, 7, 15),
    "12345": (1, 0, 3, 3, 3),
    "user:42": (1, 0, 1, 5, 5),
    "日本": (0, 2, 2, 8, 2),
    b"\x00\x01\x02": (1, 2, 3, 1, 7),
}
#: The same with Java's hashCode.
JAVA = {
    "order-1": (0, 2, 2, 0, 14),
    "hello": (0, 1, 2, 2, 2),
    12345: (1, 0, 1, 5, 9),
}


@pytest.mark.parametrize("key", MURMUR3)
def test_murmur3_agrees_with_go(key):
    """A key's partition is the one that users of go-nsq give it."""
    assert tuple(murmur3(key, count) for count in COUNTS) == MURMUR3[key]


@pytest.mark.parametrize("key", JAVA)
def test_java_agrees_with_java(key):
    """A key's partition is the one that the Java client gives it."""
    assert tuple(java(key, count) for count in COUNTS) == JAVA[key]


def test_text_and_its_bytes_have_one_partition():
    """A key may be written either way."""
    assert murmur3("日本", 10) == murmur3("日本".encode(), 10)


@pytest.mark.parametrize(("sharding", "key"), [
    (murmur3, 5), (java, b"bytes"), (java, 2**63), (java, True),
])
def test_keys_without_a_hash_are_refused(sharding, key):
    """A key that the other clients could not have is an error, not a guess."""
    with pytest.raises(InvalidMessageError):
        sharding(key, 4)


@given(st.one_of(st.text(max_size=20), st.integers(-2**63, 2**63 - 1)), st.integers(1, 255))
@fuzz
def test_java_gives_a_partition_that_exists(key, count):
    """Whatever the sign of the hash, the partition is one of the topic's."""
    assert 0 <= partition_of(key, count, java) < count


@pytest.mark.parametrize("answer", [-1, 4, 1.5, None, True])
def test_a_callable_must_give_a_partition(answer):
    """What a sharding of the user's returns is checked before the wire."""
    with pytest.raises(InvalidMessageError, match="sharding"):
        partition_of("key", 4, lambda key, count: answer)


@pytest.mark.parametrize("key", [None, 1.5, ["a"], True])
def test_what_is_no_key_is_refused(key):
    """A key is bytes, text or a whole number."""
    with pytest.raises(InvalidMessageError, match="key"):
        partition_of(key, 4, murmur3)


def test_sharding_by_name_or_callable():
    """Names stand for functions; anything else is refused."""
    assert choose_sharding("java") is java
    assert choose_sharding(max) is max
    for bad in ("crc32", 5, None):
        with pytest.raises(ConfigError, match="murmur3, java"):
            choose_sharding(bad)


def test_missing_library_says_what_to_install(monkeypatch):
    """Without mmh3 the error names the extra."""
    monkeypatch.setitem(sys.modules, "mmh3", None)
    with pytest.raises(ConfigError, match=r"nsqclient\[partitions\]"):
        murmur3("key", 4)


def test_round_robin_passes_over_what_is_avoided():
    """Partitions come in turn; one that failed just now waits, unless it is the only one."""
    turns = RoundRobin(random.Random(1))
    assert sorted(turns.choose([0, 1, 2]) for _ in range(3)) == [0, 1, 2]
    assert {turns.choose([0, 1, 2], avoid=[1]) for _ in range(4)} == {0, 2}
    assert turns.choose([5], avoid=[5]) == 5
    assert turns.choose([]) is None
