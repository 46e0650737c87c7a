"""What a replay reads, while a query has the spool. No JVM."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from nsqclient.errors import ConfigError  # noqa: E402 - needs pyarrow
from nsqclient.spark.errors import DataLossError, SpoolMismatchError  # noqa: E402 - as above
from nsqclient.spark.options import check_load, read_options  # noqa: E402 - as above
from nsqclient.spark.batch_reader import NsqBatchReader  # noqa: E402 - as above
from nsqclient.spark.replay import select_segments  # noqa: E402 - as above
from nsqclient.spark.spool.known_ids import Claim  # noqa: E402 - as above
from nsqclient.spark.spool.retention import Retention  # noqa: E402 - as above
from nsqclient.spark.spool.segment import encode_segment  # noqa: E402 - as above
from nsqclient.spark.spool.spool import Spool  # noqa: E402 - as above

#: Seconds since 1970 at which segment 0 would have been stored; the others follow each second.
BEGIN = 1_769_860_800


@pytest.fixture
def spool(tmp_path):
    """An open spool with segments 1 to 9 of ten messages each; Spark has committed up to 6."""
    spool = Spool(str(tmp_path / "the spöol #1"), "t", "c", retention=Retention(600.0, 10**9))
    spool.open(patience=0)
    for number in range(1, 10):
        messages = [(number, 1, b"%016x" % (10 * number + n), b"%d" % (10 * number + n))
                    for n in range(10)]
        tmp = spool.write_tmp(encode_segment("t", "c", [("n:1", messages)]))
        spool.append(tmp, 10, [Claim("n:1", f"{number}", 10, [m[2] for m in messages])])
        spool.conn_closed(f"{number}", clean=True)
        os.utime(spool.path_of(number), (0, BEGIN + number))
    for number in range(1, 7):
        spool.mark_committed(number)
    yield spool
    spool.close()


def options(spool, **more):
    """Checked options of a replay."""
    return read_options({"mode": "replay", "spoolDir": spool.folder.path, **more}, "batch")


def tens(spool, transport="file", **more):
    """The segments whose messages a replay gives, each whole."""
    reader = NsqBatchReader(options(spool, **more), transport, "x")
    far = pickle.loads(pickle.dumps(reader))
    bodies = [int(body) for partition in reader.partitions()
              for rows in far.read(pickle.loads(pickle.dumps(partition)))
              for body in rows.column("body").to_pylist()]
    assert len(bodies) == len(set(bodies)) == 10 * len({body // 10 for body in bodies})
    return sorted({body // 10 for body in bodies})


@pytest.mark.parametrize("transport", ["file", "inline"])
@pytest.mark.parametrize("range_options, found", [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ({"startingOffsets": '{"seq": 4}', "endingOffsets": '{"seq": 6}'}, [5, 6]),
    ({"startingOffsets": "committed"}, [7, 8, 9]),
    ({"startingOffsets": "latest"}, []),
    ({"startingTimestamp": f"{BEGIN + 4}000", "endingTimestamp": f"{BEGIN + 7}000"}, [4, 5, 6]),
    ({"startingTimestamp": f"{BEGIN + 8}000", "endingOffsets": '{"seq": 2}'}, []),
    ({"startingTimestamp": f"{BEGIN + 99}000"}, []),
])
def test_a_range_is_read_while_a_query_has_the_spool(spool, transport, range_options, found):
    """By numbers or by times; nothing in the folder changes."""
    before = sorted(os.listdir(spool.folder.path))
    assert tens(spool, transport, **range_options) == found
    assert sorted(os.listdir(spool.folder.path)) == before
    assert spool.committed == 6


def test_a_range_describes_itself(spool):
    """As the command prints it."""
    text = str(select_segments(options(spool, startingOffsets='{"seq": 7}')))
    assert text.startswith("offsets (7, 9]: 2 segments, 20 messages, ")
    assert text.endswith("stored from 2026-01-31T12:00:08+00:00 to 2026-01-31T12:00:09+00:00")
    empty = select_segments(options(spool, startingOffsets="latest"))
    assert str(empty) == "offsets (9, 9]: no segments"


@pytest.mark.parametrize("number, start, words", [
    (1, '{"seq": 0}', "has segments from 2 on; reading was to begin after 0, so 1 is not there"),
    (4, '{"seq": 2}', "has no segments 4 any more"),
    (9, '{"seq": 12}', "ends at number 8; reading was to begin after 12"),
])
def test_segments_that_are_not_kept_any_more_are_named(spool, number, start, words):
    """With failOnDataLoss=false the others are read."""
    os.unlink(spool.path_of(number))
    with pytest.raises(DataLossError, match=words):
        tens(spool, startingOffsets=start)
    found = tens(spool, startingOffsets=start, failOnDataLoss="false")
    assert number not in found and (found or number == 9)


def test_a_segment_that_is_deleted_meanwhile_is_an_error(spool):
    """Retention does not wait for a replay; where it may be lacking, the others are read."""
    readers = [NsqBatchReader(options(spool, failOnDataLoss=text), "file", "x")
               for text in ("true", "false")]
    planned = [reader.partitions() for reader in readers]
    os.unlink(spool.path_of(1))
    with pytest.raises(DataLossError, match="it was deleted. Those that Spark has committed are"):
        for partition in planned[0]:
            list(readers[0].read(partition))
    rows = [batch.num_rows for partition in planned[1] for batch in readers[1].read(partition)]
    assert sum(rows) == 80


def test_a_segment_that_is_deleted_before_it_is_sent_is_an_error(spool):
    """Inline, the driver reads it when Spark pickles the task."""
    first, second = (
        NsqBatchReader(options(spool, failOnDataLoss=text), "inline", "x").partitions()
        for text in ("true", "false"))
    os.unlink(spool.path_of(1))
    with pytest.raises(DataLossError, match="it was deleted"):
        pickle.dumps(first)
    assert sum(len(task.sources) for task in pickle.loads(pickle.dumps(second))) == 8


def test_strays_are_not_read(spool):
    """They come again under other numbers."""
    Path(spool.folder.path, "epoch-000002").write_text("8")
    assert tens(spool, endingOffsets='{"seq": 7}') == [1, 2, 3, 4, 5, 6, 7]


def test_a_folder_that_is_no_spool_is_an_error(tmp_path, spool):
    """Or that of another topic; nothing is made there."""
    with pytest.raises(SpoolMismatchError, match="there is none: meta.json is missing"):
        select_segments(read_options({"mode": "replay", "spoolDir": str(tmp_path / "x")}, "batch"))
    assert not (tmp_path / "x").exists()
    with pytest.raises(SpoolMismatchError, match="belongs to topic 't', channel 'c'"):
        select_segments(options(spool, topic="other"))
    Path(spool.folder.path, "meta.json").write_text('{"version": 9}')
    with pytest.raises(SpoolMismatchError, match="format 9"):
        select_segments(options(spool))


@pytest.mark.parametrize("change, words", [
    ({"spoolDir": ""}, "option spoolDir is missing: that of the query"),
    ({"spoolDir": "spool"}, "is relative"),
    ({"startingOffsets": "1"}, "is none of committed, earliest, latest"),
    ({"endingOffsets": "earliest"}, "is none of latest, nor"),
    ({"startingOffsets": '{"seq": 5}', "endingOffsets": '{"seq": 4}'}, "ends before it begins"),
    ({"startingTimestamp": "5", "endingTimestamp": "4"}, "ends before it begins"),
    ({"endingTimestamp": "5", "endingOffsets": "latest"}, "endingOffsets or endingTimestamp, not"),
    ({"mode": "drain", "endingOffsets": "latest"}, "set mode=replay"),
    ({"mode": "peek", "startingOffsets": "latest"}, "set mode=replay"),
])
def test_wrong_options_of_a_replay_are_found_in_load(change, words):
    """It needs neither topic, channel nor nsqd."""
    good = {"mode": "replay", "spoolDir": "/spool"}
    check_load(good)
    with pytest.raises(ConfigError, match=words):
        check_load({**good, **change})
