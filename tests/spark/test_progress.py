"""The line for each batch."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from nsqclient.spark.progress import ProgressPrinter, progress_line  # noqa: E402 - needs pyspark

LAG = {"seq": 9, "depth": {"a:4151": 1000, "b:4151": 200}, "in_flight": 900, "connections": 2,
       "spool_messages": 5, "spool_bytes": 99, "redelivered": 3, "duplicates_dropped": 2}


def progress(rows=50_000, lag=None, **more):
    """What Spark tells, as far as it matters here."""
    return {"id": "q", "batchId": 12, "numInputRows": rows, "durationMs": {"triggerExecution": 500},
            "sources": [{"latestOffset": LAG if lag is None else lag}], **more}


def test_a_batch_is_one_line_with_its_lag():
    """Rows, time, rate; what waits where; what came again."""
    assert progress_line(progress()) == (
        "batch 12: 50000 rows in 0.50 s (100000/s), lag: depth 1200, in flight 900, spool 5,"
        " redelivered 3, duplicates dropped 2")


@pytest.mark.parametrize("lag, text", [
    (json.dumps(LAG), "depth 1200"),
    ({**LAG, "depth": {}}, "depth unknown"),
    ({**LAG, "connections": 0}, "NO CONNECTION"),
])
def test_the_lag_is_read_however_it_comes(lag, text):
    """Spark nests JSON as text; nobody may answer; nobody may be there."""
    assert text in progress_line(progress(lag=lag))


def test_a_drain_that_is_over_needs_no_connection():
    """It has closed them itself."""
    line = progress_line(progress(lag={**LAG, "connections": 0, "drained": True}))
    assert "NO CONNECTION" not in line


@pytest.mark.parametrize("lag", ["not json", '"7"', {"logOffset": 1}])
def test_other_sources_have_no_lag_of_ours(lag):
    """A query may read from several."""
    assert progress_line(progress(lag=lag, name="mine")) == (
        "mine batch 12: 50000 rows in 0.50 s (100000/s)")


def test_idle_batches_are_printed_once():
    """And the end of a query with its reason."""
    stream = io.StringIO()
    printer = ProgressPrinter(stream)
    printer.onQueryStarted(SimpleNamespace(name=None, id="q"))
    for rows in (1, 0, 0, 1):
        event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress(rows))))
        printer.onQueryProgress(event)
    assert not printer.wait(0)
    printer.onQueryTerminated(SimpleNamespace(id="q", exception="why\n at line"))
    assert printer.wait(0)
    printer.onQueryTerminated(SimpleNamespace(id="q", exception=None))
    lines = stream.getvalue().splitlines()
    assert [line.split(" in ")[0] for line in lines] == [
        "query q started", "batch 12: 1 row", "batch 12: 0 rows", "batch 12: 1 row",
        "query q ended: why", "query q ended"]
