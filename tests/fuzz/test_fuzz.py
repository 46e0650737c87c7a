"""A short run of the fuzz in every test run."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.run import Fuzz

#: ``NSQ_FUZZ=full`` plays all of them: a minute on a machine that is idle.
FULL = os.environ.get("NSQ_FUZZ") == "full"
COUNT = 200_000 if FULL else 4_000


@pytest.mark.timeout(1800 if FULL else 120)
def test_a_mutated_stream_gives_events_or_a_documented_error():
    """Whatever is done to a stream, a core gives events or a documented error."""
    ends = Fuzz(seed=1).run(COUNT)
    assert sum(ends.values()) == COUNT
    # It is a fuzz only if streams end in all ways.
    assert {"client open", "client closed", "client RemoteProtocolError", "server open",
            "server closed", "tls RemoteProtocolError", "tls TLSError", "tls open"} <= set(ends)
