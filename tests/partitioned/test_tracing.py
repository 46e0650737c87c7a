"""The topics that are traced."""

from nsqclient.partitioned.tracing import TraceSwitch


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
