"""The lines of the trace log, and the topics that are traced."""

from __future__ import annotations

from nsqclient.partitioned.tracing import ConsumeTrace, PublishTrace, TraceSwitch, trace_line


def test_tracing_can_be_enabled_per_topic():
    """A topic's own setting counts until all are set again."""
    switch = TraceSwitch()
    assert not switch.is_on("t")
    switch.set(True)
    switch.set(False, "t")
    assert switch.is_on("other") and not switch.is_on("t")
    switch.set(True)
    assert switch.is_on("t")
    switch.set(False)
    switch.set(True, "t")
    assert switch.is_on("t") and not switch.is_on("other")


def test_a_trace_line_has_every_known_field():
    """The fields of the article stand in one line, by name."""
    line = trace_line("published", PublishTrace("t", 1, "n:1", 7, 77, 195, 41))
    assert line == (
        "published topic=t partition=1 nsqd=n:1 internal_id=7 trace_id=77 offset=195 size=41"
    )
    line = trace_line("received", ConsumeTrace(
        "t", "c", 0, 7, 77, None, None, 123, 1, "10.0.0.1", "n:1"))
    assert "offset" not in line and "size" not in line
    assert "timestamp=123 attempts=1 consumer=10.0.0.1 nsqd=n:1" in line
