"""A short run of each fuzz in every test run."""

import random

import pytest

from nsqclient.protocol.frames import parse_messages_in_python
from tests.fuzz import admin, parsers, streams
from tests.fuzz.run import Fuzz
from tests.support.native import needs_native

pytestmark = pytest.mark.timeout(1800)


def test_a_mutated_stream_gives_events_or_a_documented_error():
    """The test also checks that the mutated streams cover every kind of end."""
    count = 4_000
    ends = Fuzz(seed=1).run(count)
    assert sum(ends.values()) == count
    assert {"client open", "client closed", "client RemoteProtocolError", "client TLSError",
            "server open", "server closed"} <= set(ends)


@needs_native
def test_the_compiled_parser_reads_what_its_twin_in_python_reads():
    from nsqclient._native import parse_messages

    rng = random.Random(1)
    found = 0
    for _ in range(4_000):
        wire = streams.render(streams.client_side("", tls=False), rng)
        # From the first message on, so that most streams have some.
        start = max(0, wire.find(b"\0\0\0\2") - 4)
        limit = rng.choice((30, 31, 100, 4096, 2**31 - 1))
        expected = parse_messages_in_python(wire, start, limit)
        assert parse_messages(wire, start, limit) == expected
        found += bool(expected[0])
    assert found > 1000


@pytest.mark.parametrize("name", parsers.TARGETS)
def test_mutated_input_is_taken_or_refused_with_a_documented_error(name):
    """In bounded time and memory. A fuzz of seeds that are all refused would find nothing."""
    target = parsers.TARGETS[name]
    assert [seed for seed in target.seeds if parsers.play(name, seed)]
    parsers.fuzz(name, 700, seed=1)


def test_no_request_to_the_admin_page_is_an_internal_error(leak_guard):
    """Mutated methods, paths, queries, headers and bodies: anything but 500."""
    count = 300
    seen = admin.fuzz(count, seed=1)
    assert seen["200"] > count / 15 and seen["400"] > count / 50
