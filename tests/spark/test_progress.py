"""The line for each batch."""

import io
import json
from types import SimpleNamespace

import pytest

from nsqclient.spark.reading.progress import ProgressPrinter, progress_line

LAG = {"waiting": {"a:4150": {"messages": 5, "bytes": 99}},
       "depth": {"a:4151": 1000, "b:4151": 200}, "in_flight": 900, "connections": 2,
       "redelivered": 3, "duplicates_dropped": 2}


def progress(rows=50_000, lag=None, **more):
    return {"id": "q", "batchId": 12, "numInputRows": rows, "durationMs": {"triggerExecution": 500},
            "sources": [{"latestOffset": LAG if lag is None else lag}], **more}


def test_a_batch_is_one_line_with_its_lag():
    assert progress_line(progress()) == (
        "batch 12: 50000 rows in 0.50 s (100000/s), lag: depth 1200, in flight 900, 1 shard,"
        " stored 5 (a:4150 5), redelivered 3, duplicates dropped 2")


@pytest.mark.parametrize("lag, text", [
    (json.dumps(LAG), "depth 1200"),
    ({"shards": {"a:1": 9}, "waiting": {"a:1": {"messages": 0, "bytes": 0}}}, "1 shard, stored 0"),
    ({"waiting": {f"{name}:1": {"messages": number, "bytes": 9, "is_estimate": number > 0}
                  for number, name in enumerate("abcde")}},
     "5 shards, stored about 10 (e:1 4, d:1 3, c:1 2, 1 more)"),
    ({**LAG, "depth": {}}, "depth unknown"),
    ({**LAG, "depth_unknown": ["c:4151"]}, "depth at least 1200"),
    ({**LAG, "connections": 0}, "dropped 2, NO CONNECTION"),
    ({**LAG, "connections": 0, "drained": True}, "dropped 2\n"),
    ({**LAG, "disk_full": True}, "STORAGE FULL"),
])
def test_the_lag_is_read_as_an_object_or_as_text(lag, text):
    """Spark nests JSON as text. A finished drain has closed its connections."""
    assert text in progress_line(progress(lag=lag)) + "\n"


@pytest.mark.parametrize("lag", ["not json", '"7"', {"logOffset": 1}])
def test_other_sources_have_no_lag(lag):
    assert progress_line(progress(lag=lag, name="mine")) == (
        "mine batch 12: 50000 rows in 0.50 s (100000/s)")


def test_idle_batches_are_printed_once():
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
