"""``nsqclient spark archive``: a topic into files, partitioned by date and hour."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nsqclient.cli import spark_run
from nsqclient.cli.goflags import DURATION, INT, STRING, CommandLineError, Parsed
from nsqclient.cli.tools import ToolFlags, run
from nsqclient.spark.pipelines import archive, compact
from nsqclient.spark.pipelines.archiving import check_target

PROGRAM = "spark archive"

_SUMMARY = """\
Writes the messages of a topic into files, partitioned by date and hour (UTC), exactly once from the
spool on. Prints a line for each batch. SIGINT or SIGTERM stops it; it goes on where it was."""

_EXAMPLES = [
    ("follow a topic",
     "nsqclient spark archive --lookupd-http-address=127.0.0.1:4161 --topic=orders \\\n"
     "      --path=/data/orders --checkpoint=/data/orders-checkpoint"),
    ("each night, what came since",
     "nsqclient spark archive ... --available-now"),
    ("and few large files of what is over for an hour",
     "nsqclient spark archive ... --compact-to=/data/orders-large"),
]


def build_flags() -> ToolFlags:
    """The flags of the archive."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    spark_run.add_source(flags, "archive")
    spark_run.add_trigger(flags, 30.0, "longer means fewer and larger files")
    flags.group("Where to")
    flags.add("path", STRING, "", "folder of the archive; required")
    flags.add("format", STRING, "parquet", "parquet, delta (needs delta-spark), orc or json")
    flags.add("partition-by", STRING, "date,hour", "of date, hour, nsqd, channel; none: one folder")
    flags.add("files-per-batch", INT, 0, "files at most in each folder for a batch; 0: one for"
              " each task")
    flags.add("compact-to", STRING, "", "folder for few large files of those that are over")
    flags.add("compact-every", DURATION, 600.0, "time between two compactions")
    spark_run.add_session(flags)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Archive until a signal; return the exit status."""
    return run(build_flags(), argv, _run)


def _run(parsed: Parsed) -> int:
    values = parsed.values
    source = spark_run.read_source(values)
    if not values["path"]:
        raise CommandLineError("--path required")
    if values["compact-to"] and values["format"] != "parquet":
        raise CommandLineError("--compact-to is for --format=parquet; Delta has OPTIMIZE")
    parts = [part.strip() for part in values["partition-by"].split(",") if part.strip()]
    partition_by = [] if parts == ["none"] else parts
    check_target(values["path"], values["format"], partition_by, values["files-per-batch"])

    def start(spark: Any) -> spark_run.Query:
        query: spark_run.Query = archive(
            spark, path=values["path"], format=values["format"], every=values["trigger"],
            partition_by=partition_by, files_per_batch=values["files-per-batch"], **source)
        return query

    between = None
    if values["compact-to"]:
        between = _compactor(values["path"], values["compact-to"], values["compact-every"])
    return spark_run.run_query(values, f"nsqclient {PROGRAM} {source['topic']}", start, between)


def _compactor(path: str, target: str, every: float) -> Callable[[Any, bool], None]:
    last = time.monotonic()

    def maybe_compact(spark: Any, is_over: bool) -> None:
        nonlocal last
        if is_over or time.monotonic() - last >= every:
            compact(spark, path, target)
            last = time.monotonic()

    return maybe_compact
