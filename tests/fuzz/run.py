"""A run plays streams from a seed, and counts how they ended."""

import random
import resource
from collections import Counter

from nsqclient.runtime.tls import client_context
from tests.fuzz import drive, streams

#: How much more memory a whole run may take than there was before it, in MiB.
MEMORY_MIB = 64

#: How a dialogue may end; anything else is an exception that nobody promised.
ENDS = frozenset({
    "open", "closed", "RemoteProtocolError", "FrameTooLargeError", "NotNSQError", "TLSError",
})


class Fuzz:
    """Streams number ``first`` and on. Each depends on the seed and its number alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # It meets bytes that are no TLS; tests/protocol/test_tls.py changes those of a handshake.
        self._context = client_context()

    def run(self, count: int, first: int = 0) -> Counter[str]:
        """Play streams; return how often each end came.

        Raises:
            AssertionError: an end that is not documented, or too much memory.
        """
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ends: Counter[str] = Counter()
        for number in range(first, first + count):
            try:
                ends[self.play(number)] += 1
            except Exception as exc:
                raise AssertionError(f"seed {self._seed}, stream {number}: {exc!r}") from exc
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown <= MEMORY_MIB, f"{grown:.0f} MiB more than before"
        assert {end.partition(" ")[2] for end in ends} <= ENDS, ends
        return ends

    def play(self, number: int) -> str:
        """Play one stream; return its side and end."""
        rng = random.Random(self._seed * 1_000_003 + number)
        compression = rng.choice(streams.COMPRESSIONS)
        tls = rng.random() < 0.05
        if number % 2:
            wire = streams.render(streams.client_side(compression, tls), rng)
            return "client " + drive.client(streams.cut(wire, rng), self._context)
        wire = streams.render(streams.server_side(compression), rng)
        return "server " + drive.server(streams.cut(wire, rng))
