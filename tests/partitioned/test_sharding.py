"""Sharding against values computed with the other clients' libraries."""

import random
import sys
from collections import Counter

import pytest

from nsqclient.errors import ConfigError, InvalidMessageError
from nsqclient.protocol.partitioned.sharding import (
    RoundRobin, choose_sharding, java, murmur3, partition_of,
)

COUNTS = (2, 3, 4, 10, 16)
#: Key -> partitions of each count, from spaolacci/murmur3.
MURMUR3 = {
    "": (0, 0, 0, 0, 0),
    "a": (0, 2, 2, 0, 2),
    "hello": (1, 1, 3, 1, 7),
    "order-1": (1, 1, 1, 3, 1),
    "user:42": (1, 0, 1, 5, 5),
    "日本": (0, 2, 2, 8, 2),
    b"\x00\x01\x02": (1, 2, 3, 1, 7),
}
#: The same with Java's hashCode, as a JDK computes it.
JAVA = {
    "": (0, 0, 0, 0, 0),
    "a": (1, 1, 1, 7, 1),
    "日本": (1, 0, 3, 7, 7),
    "größe": (1, 1, 1, 7, 1),
    "a\u0000b": (1, 0, 3, 5, 3),
    "\U0001f600 smile": (1, 0, 1, 5, 5),
    "x" * 1000: (0, 1, 0, 2, 0),
    "polygenelubricants": (0, 2, 0, 8, 0),
    0: (0, 0, 0, 0, 0),
    -1: (0, 0, 0, 0, 0),
    -(2**31): (1, 1, 3, 7, 15),
    2**40 + 7: (1, 2, 3, 3, 7),
    2**63 - 1: (0, 2, 0, 8, 0),
    -(2**63): (0, 2, 0, 8, 0),
}


@pytest.mark.parametrize("key", MURMUR3)
def test_murmur3_agrees_with_go(key):
    assert tuple(murmur3(key, count) for count in COUNTS) == MURMUR3[key]


@pytest.mark.parametrize("key", JAVA)
def test_java_agrees_with_java(key):
    assert tuple(java(key, count) for count in COUNTS) == JAVA[key]


def test_text_and_its_bytes_have_one_partition():
    assert murmur3("日本", 10) == murmur3("日本".encode(), 10)
    assert java("\ud83d\ude00", 10) == java("\U0001f600", 10)


@pytest.mark.parametrize(("sharding", "key"), [
    (murmur3, 5), (java, b"bytes"), (java, 2**63), (java, True),
])
def test_keys_without_a_hash_are_refused(sharding, key):
    """Other clients could not have such a key."""
    with pytest.raises(InvalidMessageError):
        sharding(key, 4)


@pytest.mark.parametrize("answer", [-1, 4, 1.5, None, True])
def test_a_callable_must_return_a_valid_partition(answer):
    with pytest.raises(InvalidMessageError, match="sharding"):
        partition_of("key", 4, lambda key, count: answer)


def test_sharding_is_a_name_or_a_callable():
    assert choose_sharding("java") is java
    assert choose_sharding(max) is max
    for bad in ("crc32", 5, None):
        with pytest.raises(ConfigError, match="murmur3, java"):
            choose_sharding(bad)


def test_error_of_the_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mmh3", None)
    with pytest.raises(ConfigError, match=r"nsqclient\[partitions\]"):
        murmur3("key", 4)


def test_round_robin_skips_avoided_partitions():
    """An avoided partition is chosen only if there is no other."""
    turns = RoundRobin(random.Random(1))
    assert sorted(turns.choose([0, 1, 2]) for _ in range(3)) == [0, 1, 2]
    assert {turns.choose([0, 1, 2], avoid=[1]) for _ in range(4)} == {0, 2}
    assert turns.choose([5], avoid=[5]) == 5
    assert turns.choose([]) is None


def test_round_robin_is_fair_when_the_last_partition_is_avoided():
    """As if another thread were using it."""
    turns, used, last = RoundRobin(random.Random(1)), Counter(), []
    for _ in range(300):
        last = [turns.choose([0, 1, 2], avoid=last)]
        used.update(last)
    assert used == {0: 100, 1: 100, 2: 100}
