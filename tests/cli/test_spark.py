"""Tests of ``nsqclient spark``: its flags, and how it waits for a query. None starts Spark."""

from unittest.mock import Mock

import pytest

from nsqclient.cli import spark, spark_run
from nsqclient.cli.flags import CommandLineError
from tests.support.packages import needs

SOURCE = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--checkpoint=/nowhere"]
#: An offset of one shard.
AT = '{"v": 2, "shards": {"n:1": %d}}'
REPLAY = ["--storage=/nowhere", "--topic=t", "--channel=c"]


@pytest.mark.parametrize("words, status, text", [
    ([], 2, "usage: nsqclient spark COMMAND"),
    (["nothing"], 2, "unknown command 'nothing'"),
    (["archive"], 2, "--topic required"),
    (["archive", "--topic=t", "--checkpoint=/c", "--path=/p"], 2,
     "--lookupd-http-address required"),
    (["archive", *SOURCE[:2]], 2, "--checkpoint required"),
    (["archive", *SOURCE], 2, "--path required"),
    (["archive", *SOURCE, "--path=/x", "--format=delta", "--compact-to=/y"], 1, "Delta has"),
    (["archive", *SOURCE, "--path=/x", "--consumer-opt=,5"], 2, "write key,value"),
    (["archive", *SOURCE, "--path=/x", "--conf=spark.x"], 2, "write key=value"),
    (["archive", "--topic=t", "--nsqd-tcp-address=127.0.0.1", "--checkpoint=/x", "--path=/x"], 2,
     "has no port"),
    (["archive", *SOURCE, "--path=/x", "--consumer-opt=max_in_flght=5"], 2, "max_in_flight"),
    (["archive", *SOURCE, "--path=/x", "--format=csv"], 2, "use parquet, delta"),
    (["archive", *SOURCE, "--path=/x", "--partition-by=day"], 2, "cannot partition by 'day'"),
    (["archive", *SOURCE, "--path=/x", "--dead-letter-topic=bad"], 2, "only map_body fails on"),
    (["archive", *SOURCE, "--path=/x", "--map=json:loads", "--dead-letter-topic=t"], 2,
     "into itself without end"),
    (["archive", *SOURCE, "--path=/x", "--map=json:loads", "--dead-letter-path=bad"], 2,
     "give an absolute path"),
    pytest.param(["archive", *SOURCE, "--path=/x", "--map=no_such_module_here:f"], 2,
                 "cannot import no_such_module_here", marks=needs("pandas")),
    (["stream", *SOURCE, "--sql=x", "--sink-topic=t"], 2, "into itself without end"),
    (["stream", *SOURCE, "--sql=x", "--producer-opt=batchsice,5"], 2, "batchSize"),
    (["compact"], 2, "--path required"),
    (["compact", "--path=/x"], 2, "--target required"),
    (["replay"], 2, "--storage required"),
    (["archive", "--topic=t", "--storage=hdfs://x", "--checkpoint=/x", "--path=/x"], 2,
     "scheme 'hdfs' is not supported"),
    (["stream", "--topic=t", "--storage=file:///x", "--checkpoint=/x", "--sql=x",
      "--sink-topic=u"], 2, "needs an nsqd or lookupd of its own"),
    (["replay", *REPLAY, "--path=/x", "--sink-topic=t"], 2, "give a path or a sink_topic"),
    (["replay", *REPLAY[1:], "--storage=x", "--path=/x"], 2, "give an absolute path"),
    (["replay", *REPLAY, "--path=/x", "--starting-offset=first"], 2, "is none of committed"),
    (["replay", *REPLAY, "--path=/x", f"--starting-offset={AT % 9}",
      f"--ending-offset={AT % 8}"], 2, "ends before it begins"),
    (["replay", *REPLAY, "--path=/x", "--starting-timestamp=noon"], 2, "write 2026-01-31T12"),
    (["replay", *REPLAY, "--path=/x", "--ending-timestamp=2026-01-31T12:00"], 2, "(no zone)"),
    (["replay", *REPLAY, "--path=/x", "--partition-by=day"], 2, "cannot partition by 'day'"),
    (["replay", *REPLAY, "--path=/x", "--producer-opt=snappy"], 2, "are for a sink_topic"),
    (["replay", *REPLAY, "--sink-topic=t"], 2, "give nsqd (host:port, TCP)"),
    pytest.param(["replay", *REPLAY, "--path=/x"], 1, "has no log of t/c", marks=needs("pyarrow")),
    (["stream", *SOURCE], 2, "--sql or --sql-file or --map"),
    (["stream", *SOURCE, "--sql=x", "--map=a:b"], 2, "use --sql or"),
    (["stream", *SOURCE, "--sql-file=/nowhere/x.sql"], 1, "No such file"),
])
def test_an_invalid_command_line_is_an_error_before_spark_starts(capsys, words, status, text):
    assert spark.main(words) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(set(spark.COMMANDS) - {"script"}))
def test_each_command_has_a_help_text(capsys, command):
    assert spark.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert ("--conf key=value" in text) != (command == "status")


@pytest.mark.parametrize("text, milliseconds", [
    ("1769860800000", 1769860800000), ("2026-01-31T12:00:00Z", 1769860800000),
    ("2026-01-31 13:00:00.250+01:00", 1769860800250)])
def test_a_time_is_a_date_with_its_zone_or_milliseconds(text, milliseconds):
    assert spark.TIMESTAMP.parse(text) == milliseconds


@pytest.mark.parametrize("words, found", [
    ([], "shard n:1: offsets (0, 3]: 3 segments, 6 messages, "),
    ([f"--starting-offset={AT % 1}", f"--ending-offset={AT % 2}"],
     "shard n:1: offsets (1, 2]: 1 segment, 2 messages, "),
    (["--starting-offset=committed"], "shard n:1: offsets (0, 3]: 3 segments"),
    (["--starting-timestamp=2020-01-01T00:00:00Z", "--ending-timestamp=1577836800000"],
     "shard n:1: offsets (0, 0]: no segments"),
])
def test_a_dry_run_shows_what_a_log_has(capsys, tmp_path, words, found):
    pytest.importorskip("pyarrow")
    from nsqclient.spark.storage import open_store
    from tests.spark.logs import write_log

    write_log(open_store(str(tmp_path)), "n:1", 2, 2, 2)
    assert spark.main(
        ["replay", f"--storage={tmp_path}", *REPLAY[1:], "--dry-run", *words]) == 0
    assert capsys.readouterr().out.startswith(found)


def test_the_script_for_spark_submit_is_there(capsys):
    assert spark.main(["script"]) == 0
    path = capsys.readouterr().out.strip()
    with open(path, encoding="utf-8") as file:
        assert "nsqclient.cli.spark" in file.read()


def test_a_query_that_failed_is_an_error_with_the_reason():
    error = RuntimeError("[STREAM_FAILED] Query terminated\n  File x\n"
                         "nsqclient.spark.errors.LogInUseError: log /x: in use\n at y")
    with pytest.raises(CommandLineError, match="the query failed: log /x: in use"):
        spark_run.finish(Mock(**{"awaitTermination.side_effect": error}), stopping=False)
