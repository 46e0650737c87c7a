"""A run plays streams from a seed, and counts how they ended."""

import random
import resource
import tempfile
from collections import Counter
from pathlib import Path

from nsqclient.protocol.layers.tls import TLSLayer
from nsqclient.runtime.tls import client_context, server_context
from tests.fuzz import drive, streams
from tests.support.certificates import Certificates

#: How much more memory a whole run may take than there was before it, in MiB.
MEMORY_MIB = 64
#: One of this many streams goes through a real TLS handshake, which takes a millisecond.
_TLS_EVERY = 40

#: How a dialogue may end; anything else is an exception that nobody promised.
ENDS = frozenset({
    "open", "closed", "RemoteProtocolError", "FrameTooLargeError", "NotNSQError", "TLSError",
})


class Fuzz:
    """Streams number ``first`` and on. Each depends on the seed and its number alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        with tempfile.TemporaryDirectory() as folder:
            certificates = Certificates(Path(folder))
            self._client_context = client_context(ca_file=certificates.ca)
            self._server_context = server_context(
                cert=certificates.server, key=certificates.server_key
            )

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
        if number % _TLS_EVERY == 0:
            return "tls " + self._through_tls(rng)
        compression = rng.choice(streams.COMPRESSIONS)
        tls = rng.random() < 0.05
        if number % 2:
            wire = streams.render(streams.client_side(compression, tls), rng)
            return "client " + drive.client(streams.cut(wire, rng), self._client_context)
        wire = streams.render(streams.server_side(compression, tls), rng)
        return "server " + drive.server(streams.cut(wire, rng), self._server_context)

    def _through_tls(self, rng: random.Random) -> str:
        """Let a real server end and the client core shake hands, and change its bytes."""
        stream = streams.client_side(rng.choice(streams.COMPRESSIONS), tls=True)
        theirs = TLSLayer(self._server_context, server_side=True)
        ours = TLSLayer(self._client_context, server_name="127.0.0.1")
        theirs.decode(ours.wire_output())
        flight = theirs.wire_output()
        if rng.random() < 0.5:
            flight = streams.mutate(flight, rng)
        try:
            for piece in streams.cut(flight, rng):
                ours.decode(piece)
            theirs.decode(ours.wire_output())
            if rng.random() < 0.5:
                ours.decode(theirs.wire_output() + theirs.encode(streams.OK))
            wire = theirs.wire_output() + theirs.encode(streams.render(stream, rng))
            if rng.random() < 0.7:
                wire = streams.mutate(wire, rng)
            for piece in streams.cut(wire, rng):
                ours.decode(piece)
        except (drive.RemoteProtocolError, drive.TLSError) as exc:
            return type(exc).__name__
        return "open"
