"""Tests of ``nsqclient spark``: its flags, and how it waits for a query. None starts Spark."""

from __future__ import annotations

import pytest

from nsqclient.cli import spark, spark_run
from nsqclient.cli.goflags import CommandLineError, FlagError

SOURCE = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--checkpoint=/nowhere"]


class FakeQuery:
    """A query that has ended, perhaps with an error."""

    def __init__(self, error=None):
        self.isActive = False
        self.stops = 0
        self._error = error

    def stop(self):
        self.stops += 1

    def awaitTermination(self):
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("words, status, text", [
    ([], 2, "Usage: nsqclient spark COMMAND"),
    (["nothing"], 2, "unknown command 'nothing'"),
    (["archive"], 1, "--topic required"),
    (["archive", "--topic=t"], 1, "--lookupd-http-address required"),
    (["archive", *SOURCE[:2]], 1, "--checkpoint required"),
    (["archive", *SOURCE], 1, "--path required"),
    (["archive", *SOURCE, "--path=/x", "--format=delta", "--compact-to=/y"], 1, "Delta has"),
    (["archive", *SOURCE, "--path=/x", "--consumer-opt=,5"], 2, "write key,value"),
    (["archive", *SOURCE, "--path=/x", "--conf=spark.x"], 2, "write key=value"),
    (["archive", "--topic=t", "--nsqd-tcp-address=127.0.0.1", "--checkpoint=/x", "--path=/x"], 1,
     "has no port"),
    (["archive", *SOURCE, "--path=/x", "--consumer-opt=max_in_flght,5"], 1, "max_in_flight"),
    (["archive", *SOURCE, "--path=/x", "--format=csv"], 1, "use parquet, delta"),
    (["archive", *SOURCE, "--path=/x", "--partition-by=day"], 1, "cannot partition by 'day'"),
    (["stream", *SOURCE, "--sql=x", "--sink-topic=t"], 1, "into itself for ever"),
    (["stream", *SOURCE, "--sql=x", "--producer-opt=batchsice,5"], 1, "batchSize"),
    (["compact"], 1, "--path required"),
    (["compact", "--path=/x"], 1, "--target required"),
    (["stream", *SOURCE], 1, "give one of --sql, --sql-file, --map"),
    (["stream", *SOURCE, "--sql=x", "--map=a:b"], 1, "give one of --sql"),
    (["stream", *SOURCE, "--map=no_such_module_here:f"], 1, "cannot import no_such_module_here"),
    (["stream", *SOURCE, "--sql-file=/nowhere/x.sql"], 1, "No such file"),
    (["stream", *SOURCE, "--sql=x", "--sink-topic=a b"], 1, "--sink-topic is invalid"),
])
def test_a_command_line_that_cannot_be_is_refused_before_spark_starts(
    capsys, words, status, text
):
    """With the statuses of the other tools."""
    assert spark.main(words) == status
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(spark.COMMANDS))
def test_each_command_has_a_help_text(capsys, command):
    """It names the flags, and gives examples."""
    assert spark.main([command, "--help"]) == 0
    text = capsys.readouterr().err
    assert "--conf key=value" in text and "Examples:" in text


def test_the_script_for_spark_submit_is_there(capsys):
    """A file that Python can run."""
    assert spark.main(["script"]) == 0
    path = capsys.readouterr().out.strip()
    with open(path, encoding="utf-8") as file:
        assert "nsqclient.cli.spark" in file.read()


def test_options_of_the_source_keep_their_names():
    """A word alone means true."""
    assert spark_run.read_options(["maxSpoolMessages,5", "tls_v1"], "consumer-opt") == {
        "maxSpoolMessages": "5", "tls_v1": "true"}
    with pytest.raises(FlagError):
        spark_run.read_options([" ,x"], "consumer-opt")


def test_a_query_that_failed_is_an_error_with_the_reason():
    """The library's own error, not Spark's page of it."""
    error = RuntimeError("[STREAM_FAILED] Query terminated\n  File x\n"
                         "nsqclient.spark.errors.SpoolLockedError: spool /x: in use\n at y")
    with pytest.raises(CommandLineError, match="the query failed: spool /x: in use"):
        spark_run.finish(FakeQuery(error), stopping=False)


def test_what_fails_while_a_query_is_stopped_is_no_error():
    """A signal reaches Spark's own processes as well."""
    query = FakeQuery(RuntimeError("interrupted"))
    spark_run.finish(query, stopping=True)
    assert query.stops == 1


def test_without_an_error_of_ours_the_first_line_is_the_reason():
    """Or the name, where there is no text."""
    assert spark_run.reason(ValueError("\nfirst\nsecond")) == "first"
    assert spark_run.reason(ValueError()) == "ValueError"
