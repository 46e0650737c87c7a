"""``nsqclient spark``: the pipelines on Spark, and the commands for their logs."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nsqclient.cli import build_program, spark_run
from nsqclient.cli.command import Command, CommandGroup
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, NAME, PATH, STRING, STRINGS, CommandLineError, Kind, Parsed,
)
from nsqclient.cli.spark_shards import ingest_flags, status_flags
from nsqclient.cli.tool_flags import ToolFlags, add_secret_flags, read_secrets
from nsqclient.display import counted, show_size
from nsqclient.errors import NSQError
from nsqclient.spark.options import BATCH, read_options
from nsqclient.spark.pipelines import archive, compact, replay, stream
from nsqclient.spark.pipelines.archiving import check_target, choose_dead_letters
from nsqclient.spark.pipelines.replaying import check_sink, replay_options
from nsqclient.spark.pipelines.streaming import Sink, check_topics
from nsqclient.spark.pipelines.transforms import check_pandas, load_function
from nsqclient.spark.session import reason_of


_ARCHIVE_SUMMARY = """\
Writes the messages of a topic to files, partitioned by date and hour (UTC). Each message in the
log is written exactly once. Prints one line per batch. SIGINT or SIGTERM stops the query; the
next run continues where it stopped."""

_ARCHIVE_EXAMPLES = [
    ("archive a topic continuously",
     "nsqclient spark archive --lookupd-http-address=127.0.0.1:4161 --topic=orders \\\n"
     "      --path=/data/orders --checkpoint=/data/orders-checkpoint"),
    ("archive all new messages, for example each night",
     "nsqclient spark archive ... --available-now"),
]

_COMPACT_SUMMARY = """\
Copies the files of a Parquet archive to few large files, in a separate folder with the same
partitions. Each file is copied once, even if you repeat the command after a failure."""

_COMPACT_EXAMPLES = [
    ("compact all hours that ended at least one hour ago",
     "nsqclient spark compact --path=/data/orders --target=/data/orders-large"),
]

_REPLAY_SUMMARY = """\
Writes the messages that the log of a query still contains to new files or a topic: to process them
again, or if the sink of the query may have lost them in a power failure. This does not change the
log, and the query may be running."""

_REPLAY_EXAMPLES = [
    ("show which messages were stored since a point in time, without writing them",
     "nsqclient spark replay --storage=/data/orders-checkpoint/nsq-log --topic=orders \\\n"
     "      --channel=archive --starting-timestamp=2026-01-31T12:00:00Z --dry-run"),
    ("write the messages after an offset of the checkpoint to files",
     "nsqclient spark replay ... --path=/data/orders-replayed \\\n"
     "      --starting-offset='{\"shards\": {\"127.0.0.1:4150\": 812}}'"),
]

_STREAM_SUMMARY = """\
Reads a topic, transforms its messages and publishes the result, at least once. Rows for which the
transformation fails are published to a dead-letter topic. Prints one line per batch. SIGINT or
SIGTERM stops the query; the next run continues where it stopped."""

_STREAM_EXAMPLES = [
    ("transform messages with SQL, from the view messages",
     "nsqclient spark stream --nsqd-tcp-address=127.0.0.1:4150 --topic=orders \\\n"
     "      --checkpoint=/data/checkpoint --sink-topic=paid --dead-letter-topic=orders-bad \\\n"
     "      --sql \"SELECT body FROM messages WHERE get_json_object(cast(body AS string),"
     " '$.state') = 'paid'\""),
    ("transform each body with a Python function in jobs.py",
     "nsqclient spark stream ... --map=jobs:enrich --sink-topic=rich"),
]


def _parse_partitions(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [] if parts == ["none"] else parts


def _parse_timestamp(text: str) -> int | None:
    """Read a time as milliseconds since 1970."""
    if not text or text.isdecimal():
        return int(text) if text else None
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        if moment.tzinfo is None:
            raise ValueError("no zone")
    except ValueError as exc:
        raise CommandLineError(
            f"is invalid: {text!r} ({exc}): write 2026-01-31T12:00:00Z, +01:00 for another"
            " zone, or milliseconds since 1970") from None
    return round(moment.timestamp() * 1000)


PARTITIONS = Kind("string", _parse_partitions, ",".join)
TIMESTAMP = Kind("string", _parse_timestamp)

#: Seconds between two compactions of --compact-to.
_COMPACT_INTERVAL = 600.0

_TRANSFORM_FLAGS = ("sql", "sql-file", "map", "transform", "for-each-batch")


def _archive_flags() -> ToolFlags:
    flags = ToolFlags("spark archive", _archive, _ARCHIVE_SUMMARY, _ARCHIVE_EXAMPLES)
    spark_run.add_source(flags, "archive")
    spark_run.add_trigger(flags, 30.0, "a longer time gives fewer and larger files")
    flags.group("Output")
    flags.add("path", PATH, "", "folder of the archive; required")
    flags.require("path")
    _add_files(flags)
    flags.add("files-per-batch", INT, 0, "maximum number of files per folder and batch; 0: one for"
              " each task")
    flags.add("compact-to", PATH, "", "folder for few large files of past hours")
    flags.group("Transformation")
    flags.add("map", STRING, "", "function (package.module:function) that takes a body (bytes) and"
              " returns one body, several or None")
    _add_dead_letters(flags)
    flags.add("dead-letter-path", PATH, "", "folder for failed rows, instead of a topic; all"
              " executors must have access to it")
    spark_run.add_session(flags)
    return flags


def _archive(parsed: Parsed) -> int:
    values = parsed.values
    source = spark_run.read_source(values)
    if values["compact-to"] and values["format"] != "parquet":
        raise CommandLineError("--compact-to is for --format=parquet; Delta has OPTIMIZE")
    check_target(values["path"], values["format"], values["partition-by"],
                 values["files-per-batch"])
    sink = _read_dead_letters(values)
    choose_dead_letters(source, bool(values["map"]), values["dead-letter-topic"],
                        values["dead-letter-path"], sink)
    work = _transform_argument("map", values["map"]) if values["map"] else {}

    def start(spark: Any) -> Any:
        return archive(
            spark, path=values["path"], format=values["format"], every=values["trigger"],
            partition_by=values["partition-by"], files_per_batch=values["files-per-batch"],
            dead_letter_topic=values["dead-letter-topic"],
            dead_letter_path=values["dead-letter-path"], sink_options=sink, **work, **source)

    between = None
    if values["compact-to"]:
        between = _compactor(values["path"], values["compact-to"])
    return spark_run.run_query(values, f"nsqclient spark archive {source['topic']}", start, between)


def _compactor(path: str, target: str) -> Callable[[Any, bool], None]:
    last = time.monotonic()

    def maybe_compact(spark: Any, is_over: bool) -> None:
        nonlocal last
        if is_over or time.monotonic() - last >= _COMPACT_INTERVAL:
            compact(spark, path, target)
            last = time.monotonic()

    return maybe_compact


def _compact_flags() -> ToolFlags:
    flags = ToolFlags("spark compact", _compact, _COMPACT_SUMMARY, _COMPACT_EXAMPLES)
    flags.group("Files")
    flags.add("path", PATH, "", "folder of the archive; required")
    flags.add("target", PATH, "", "folder for the large files; required")
    flags.require("path")
    flags.require("target")
    flags.add("older-than", DURATION, 3600.0, "minimum time since the end of a partition, which is"
              " an hour or a day")
    flags.add("target-bytes", INT, 128 * 1024 * 1024, "target size of the large files, in bytes")
    spark_run.add_session(flags)
    return flags


def _compact(parsed: Parsed) -> int:
    values = parsed.values
    spark = spark_run.start_session(values, "nsqclient spark compact")
    try:
        done = compact(
            spark, values["path"], values["target"], older_than=values["older-than"],
            target_bytes=values["target-bytes"])
    finally:
        spark.stop()
    print(f"{counted(done.partitions, 'partition')}: {counted(done.files_before, 'file')}"
          f" ({show_size(done.bytes_before)}) became {done.files_after}"
          f" ({show_size(done.bytes_after)})")
    return 0


def _replay_flags() -> ToolFlags:
    flags = ToolFlags("spark replay", _replay, _REPLAY_SUMMARY, _REPLAY_EXAMPLES)
    flags.group("Input")
    flags.add("storage", STRING, "", "storage of the query, a path or s3://bucket/prefix; required")
    flags.require("storage")
    flags.add_topic(channel="")
    flags.add("starting-offset", STRING, "", 'begin after {"shards": {"HOST:PORT": N}}, an'
              " offset of the checkpoint, or after the last commit of Spark (committed) (default:"
              " the oldest kept segment)")
    flags.add("starting-timestamp", TIMESTAMP, None, "begin with the first segment that was stored"
              " at this time or later, such as 2026-01-31T12:00:00Z, or milliseconds since 1970")
    flags.add("ending-offset", STRING, "", "last segment of each shard, as an offset of the"
              " checkpoint (default: the newest)")
    flags.add("ending-timestamp", TIMESTAMP, None, "end before the first segment that was stored at"
              " this time or later")
    flags.add("fail-on-data-loss", BOOL, True, "fail if segments are missing or damaged; false:"
              " read the rest")
    flags.add("dry-run", BOOL, False, "print the segments and counts only; write nothing")
    flags.group("Output (--path or --sink-topic is required)")
    flags.add("path", PATH, "", "folder for the files, which must not exist")
    _add_files(flags)
    flags.add("sink-topic", NAME, "", "NSQ topic to which to publish the bodies")
    _add_sink(flags, "or --producer-opt=lookupd,<addr>:<port>")
    add_secret_flags(flags)
    spark_run.add_session(flags)
    return flags


def _replay(parsed: Parsed) -> int:
    values = parsed.values
    source = {**_range_options(values), "topic": values["topic"], "channel": values["channel"]}
    texts = replay_options(values["storage"], source)
    if not values["dry-run"]:
        sink = _read_sink(values)
        if values["sink-topic"]:
            sink = read_secrets(values, sink)
        target: dict[str, Any] = {
            "path": values["path"], "sink_topic": values["sink-topic"], "sink_options": sink,
            "format": values["format"], "partition_by": values["partition-by"]}
        check_sink(**target)
    from nsqclient.spark.reading.replay import select_stored

    print(select_stored(read_options(texts, BATCH)), flush=True)
    if values["dry-run"]:
        return 0
    spark = spark_run.start_session(values, "nsqclient spark replay")
    try:
        done = replay(spark, storage=values["storage"], **target, **source)
    except NSQError:
        raise
    except Exception as exc:  # pyspark's errors do not share a base class
        raise CommandLineError(f"the replay failed: {reason_of(exc)}") from exc
    finally:
        spark.stop()
    print(f"{counted(done.messages, 'message')} written to"
          f" {values['path'] or values['sink-topic']}")
    return 0


def _range_options(values: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"failOnDataLoss": values["fail-on-data-loss"]}
    for name in ("starting", "ending"):
        if values[f"{name}-offset"]:
            options[f"{name}Offsets"] = values[f"{name}-offset"]
        if values[f"{name}-timestamp"] is not None:
            options[f"{name}Timestamp"] = values[f"{name}-timestamp"]
    return options


def _stream_flags() -> ToolFlags:
    flags = ToolFlags("spark stream", _stream, _STREAM_SUMMARY, _STREAM_EXAMPLES)
    spark_run.add_source(flags, "stream")
    spark_run.add_trigger(flags, 0.0, "0: start each batch when the last one has ended")
    flags.group("Transformation (one of these; write functions as package.module:function)")
    flags.add("sql", STRING, "", "SQL query on the view messages; its result has a column body")
    flags.add("sql-file", PATH, "", "file with such a query")
    flags.add("map", STRING, "", "function that takes a body (bytes) and returns one body, several"
              " or None")
    flags.add("transform", STRING, "", "function that takes and returns a DataFrame")
    flags.add("for-each-batch", STRING, "", "function that takes a DataFrame and the number of the"
              " batch")
    flags.require(*_TRANSFORM_FLAGS)
    flags.group("Output")
    flags.add("sink-topic", NAME, "", "NSQ topic to which to publish the result")
    _add_dead_letters(flags)
    flags.add("max-bad-rows", INT, 20, "number of rows of a batch for which --sql or --transform"
              " may fail; if more rows fail, the query ends")
    spark_run.add_session(flags)
    return flags


def _stream(parsed: Parsed) -> int:
    values = parsed.values
    source = spark_run.read_source(values)
    sink = _read_dead_letters(values)
    given = next(flag for flag in _TRANSFORM_FLAGS if values[flag])
    work = _transform_argument(given, values[given])
    check_topics(source["topic"], values["sink-topic"], values["dead-letter-topic"])
    if given != "for-each-batch":
        Sink(source, sink, values["sink-topic"], values["dead-letter-topic"])

    def start(spark: Any) -> Any:
        return stream(
            spark, sink_topic=values["sink-topic"],
            dead_letter_topic=values["dead-letter-topic"], sink_options=sink,
            max_bad_rows=values["max-bad-rows"], every=values["trigger"], **work, **source)

    return spark_run.run_query(values, f"nsqclient spark stream {source['topic']}", start)


def _add_files(flags: ToolFlags) -> None:
    flags.add("format", STRING, "parquet", "parquet, delta (needs delta-spark), orc or json")
    flags.add("partition-by", PARTITIONS, ["date", "hour"],
              "any of date, hour, nsqd and channel; none: one folder")


def _add_sink(flags: ToolFlags, otherwise: str) -> None:
    flags.add("sink-nsqd-tcp-address", STRINGS, (), "TCP address of an nsqd to publish to,"
              f" <addr>:<port>; may be repeated ({otherwise})")
    flags.add_producer_options()


def _read_sink(values: dict[str, Any]) -> dict[str, Any]:
    sink = dict(values["producer-opt"])
    if values["sink-nsqd-tcp-address"]:
        sink["nsqd"] = ",".join(values["sink-nsqd-tcp-address"])
    return sink


def _add_dead_letters(flags: ToolFlags) -> None:
    flags.add("dead-letter-topic", NAME, "", "NSQ topic for failed rows (default: a failed row"
              " ends the query)")
    _add_sink(flags, "default: the source")


def _read_dead_letters(values: dict[str, Any]) -> dict[str, Any]:
    sink = _read_sink(values)
    if sink and not spark_run.has_sources(values):  # otherwise the source has them, and shares
        sink = read_secrets(values, sink)
    return sink


def _transform_argument(flag: str, text: str) -> dict[str, Any]:
    if "" not in sys.path:
        sys.path.insert(0, "")  # functions in the current folder, as with python -m
    if flag == "sql":
        return {"transform": text}
    if flag == "sql-file":
        try:
            return {"transform": Path(text).read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandLineError(f"--sql-file cannot be read: {exc}") from exc
    if flag == "map":
        check_pandas()
    name = {"map": "map_body", "transform": "transform", "for-each-batch": "for_each_batch"}[flag]
    return {name: load_function(text)}


COMMANDS: dict[str, tuple[str, Callable[[], Command]]] = {
    "archive": ("write a topic into Parquet by date and hour", _archive_flags),
    "compact": ("write an archive's small files into few large ones", _compact_flags),
    "ingest": ("receive messages into logs that queries read", ingest_flags),
    "replay": ("write the messages that a log still has again", _replay_flags),
    "script": ("print the path of the script for spark-submit",
               lambda: Command("spark script", _print_script, "Prints the path of a file.")),
    "status": ("show the shards of a storage and their lag", status_flags),
    "stream": ("transform a topic and publish to another", _stream_flags),
}


def build_command() -> CommandGroup:
    return CommandGroup("nsqclient spark", "Pipelines on Spark, and their logs.", COMMANDS)


def main(argv: Sequence[str]) -> int:
    return build_command().run(argv, build_program())


def _print_script(parsed: Parsed) -> int:
    print(Path(__file__).resolve().parents[2] / "pyspark_nsq" / "__main__.py")
    return 0
