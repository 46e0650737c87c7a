"""The partition of a key, and round robin without a key.

The modulus is the total number of partitions, including those without a leader, so that a key keeps
its partition when a leader moves.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Container, Iterable

from nsqclient.errors import ConfigError, InvalidMessageError
from nsqclient.protocol.partitioned.extensions import is_whole_number

#: A message's key: text is encoded in UTF-8. Only the Java hash accepts whole numbers.
Key = bytes | str | int
#: (key, number of partitions) -> partition
Sharding = Callable[[Key, int], int]


def murmur3(key: Key, partition_num: int) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) of bytes or text, as with go-nsq.

    Raises ConfigError without the library ``mmh3`` (extra ``partitions``), and InvalidMessageError
    if the key is a number.
    """
    try:
        import mmh3
    except ImportError as exc:
        raise ConfigError(
            "key= needs the library mmh3: pip install nsqclient[partitions], or give"
            " sharding='java' or a callable"
        ) from exc
    if isinstance(key, str):
        key = key.encode()
    if not isinstance(key, bytes):
        raise InvalidMessageError(f"key {key!r}: murmur3 takes bytes or text")
    return int(mmh3.hash(key, 0, signed=False)) % partition_num


def java(key: Key, partition_num: int) -> int:
    """``Math.abs(key.hashCode() % n)`` of a Java String or Long, as with the Java client.

    Raises InvalidMessageError if the key is bytes, or does not fit a Long.
    """
    if isinstance(key, str):
        code = 0
        data = key.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(data), 2):
            code = (31 * code + int.from_bytes(data[index:index + 2], "big")) & 0xFFFFFFFF
    elif isinstance(key, int) and not isinstance(key, bool) and -2**63 <= key < 2**63:
        bits = key & 0xFFFFFFFFFFFFFFFF
        code = (bits ^ bits >> 32) & 0xFFFFFFFF
    else:
        raise InvalidMessageError(f"key {key!r}: java takes text or a whole number of 64 bits")
    if code >= 0x80000000:
        code -= 0x100000000
    return abs(code) % partition_num  # Java's remainder has the sign of the code


SHARDINGS: dict[str, Sharding] = {"murmur3": murmur3, "java": java}


def choose_sharding(sharding: str | Sharding) -> Sharding:
    """Return the function for a name, or the function itself; raise ConfigError for another."""
    if callable(sharding):
        return sharding
    chosen = SHARDINGS.get(sharding) if isinstance(sharding, str) else None
    if chosen is None:
        raise ConfigError(f"sharding {sharding!r}: use {', '.join(SHARDINGS)} or a callable")
    return chosen


def check_key(key: object) -> Key:
    """Return a key as text, bytes or a number; raise InvalidMessageError for another type."""
    if isinstance(key, (bytearray, memoryview)):
        key = bytes(key)
    if not isinstance(key, (bytes, str, int)) or isinstance(key, bool):
        raise InvalidMessageError(f"key must be bytes, text or a whole number, not {key!r}")
    return key


def partition_of(key: object, partition_num: int, sharding: Sharding) -> int:
    """Return the partition of a key. Raises InvalidMessageError."""
    partition = sharding(check_key(key), partition_num)
    if not is_whole_number(partition, partition_num - 1):
        raise InvalidMessageError(
            f"the sharding gave partition {partition!r} for key {key!r}: 0 to {partition_num - 1}"
        )
    return partition


class RoundRobin:
    """Chooses partitions in turn, from a random start. Thread-safe: a turn is a single call."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._counter = itertools.count((rng or random.Random()).randrange(1024))

    def choose(self, partitions: Iterable[int], avoid: Container[int] = ()) -> int | None:
        """Return the next partition, outside ``avoid`` if possible; None if there are none."""
        found = sorted(partitions)
        if not found:
            return None
        first = next(self._counter)
        for skipped in range(len(found)):
            partition = found[(first + skipped) % len(found)]
            if partition not in avoid:
                # Otherwise the next partition would get the turns of the skipped partitions too.
                for _ in range(skipped):
                    next(self._counter)
                return partition
        return found[first % len(found)]
