"""``nsqclient spark stream``: a topic, a transform, a topic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsqclient.cli import spark_run
from nsqclient.cli.goflags import INT, STRING, STRINGS, CommandLineError, Parsed
from nsqclient.cli.tools import ToolFlags, check_name, run
from nsqclient.spark.pipelines import stream
from nsqclient.spark.pipelines.streaming import Sink, check_topics
from nsqclient.spark.pipelines.transforms import load_function

PROGRAM = "spark stream"

_WAYS = ("sql", "sql-file", "map", "transform", "for-each-batch")

_SUMMARY = """\
Reads a topic, transforms its messages and publishes the result, at least once. Rows that the
transform fails on go to a dead-letter topic. Prints a line for each batch. SIGINT or SIGTERM stops
it; it goes on where it was."""

_EXAMPLES = [
    ("in SQL, over the view messages",
     "nsqclient spark stream --nsqd-tcp-address=127.0.0.1:4150 --topic=orders \\\n"
     "      --checkpoint=/data/checkpoint --sink-topic=paid --dead-letter-topic=orders-bad \\\n"
     "      --sql \"SELECT body FROM messages WHERE get_json_object(cast(body AS string),"
     " '$.state') = 'paid'\""),
    ("with a Python function of a body, in jobs.py",
     "nsqclient spark stream ... --map=jobs:enrich --sink-topic=rich"),
]


def build_flags() -> ToolFlags:
    """The flags of the stream."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    spark_run.add_source(flags, "stream")
    spark_run.add_trigger(flags, 0.0, "0: each as soon as the last has ended")
    flags.group("What to do (one of these; a function is package.module:function)")
    flags.add("sql", STRING, "", "SQL over the view messages; the result has a column body")
    flags.add("sql-file", STRING, "", "file with such a text")
    flags.add("map", STRING, "", "function of one body (bytes) that returns one, several or None")
    flags.add("transform", STRING, "", "function of a DataFrame that returns one")
    flags.add("for-each-batch", STRING, "", "function of a DataFrame and a batch's number")
    flags.group("Where to")
    flags.add("sink-topic", STRING, "", "NSQ topic for the result")
    flags.add("dead-letter-topic", STRING, "", "NSQ topic for rows that fail (default: they end"
              " the query)")
    flags.add("sink-nsqd-tcp-address", STRINGS, (), "nsqd <addr>:<port> to publish to; may be"
              " repeated (default: where messages come from)")
    flags.add_producer_options()
    flags.add("max-bad-rows", INT, 20, "when --sql or --transform fails on more rows of a batch,"
              " the query ends")
    spark_run.add_session(flags)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Stream until a signal; return the exit status."""
    return run(build_flags(), argv, _run)


def _run(parsed: Parsed) -> int:
    values = parsed.values
    source = spark_run.read_source(values)
    for flag in ("sink-topic", "dead-letter-topic"):
        if values[flag]:
            check_name(values[flag], flag)
    given = [way for way in _WAYS if values[way]]
    if len(given) != 1:
        raise CommandLineError(f"give one of --{', --'.join(_WAYS)}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # functions in the current folder, as with python -m
    work = _work(given[0], values[given[0]])
    sink = spark_run.read_options(values["producer-opt"], "producer-opt")
    if values["sink-nsqd-tcp-address"]:
        sink["nsqd"] = ",".join(values["sink-nsqd-tcp-address"])
    check_topics(source["topic"], values["sink-topic"], values["dead-letter-topic"])
    if given[0] != "for-each-batch":
        Sink(source, sink, values["sink-topic"], values["dead-letter-topic"])

    def start(spark: Any) -> spark_run.Query:
        query: spark_run.Query = stream(
            spark, sink_topic=values["sink-topic"],
            dead_letter_topic=values["dead-letter-topic"], sink_options=sink,
            max_bad_rows=values["max-bad-rows"], every=values["trigger"], **work, **source)
        return query

    return spark_run.run_query(values, f"nsqclient {PROGRAM} {source['topic']}", start)


def _work(way: str, text: str) -> dict[str, Any]:
    """The argument of ``stream`` that a flag stands for."""
    if way == "sql":
        return {"transform": text}
    if way == "sql-file":
        try:
            return {"transform": Path(text).read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandLineError(f"--sql-file cannot be read: {exc}") from exc
    name = {"map": "map_body", "transform": "transform", "for-each-batch": "for_each_batch"}[way]
    return {name: load_function(text)}
