"""The whole data pipeline in one run: a text file, NSQ, Parquet, a query, a picture, a ledger.

Starts an embedded nsqd, publishes every line of a text file, archives the topic to Parquet with
Spark, counts the words of the archive, and compares the archived lines with the published ones.

    make pipeline                                    the sample file, on the embedded nsqd
    make pipeline INPUT=/var/log/syslog              a file of yours
    make pipeline NSQD=127.0.0.1:4150                a running nsqd; or LOOKUPD=127.0.0.1:4161

The exit status is 0 only when every line is in the archive exactly once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from picture import draw

import nsqclient.spark
from nsqclient import NSQError, Producer
from nsqclient.devserver import Nsqd
from nsqclient.spark.pipelines import archive
from nsqclient.spark.pipelines.sources import open_session

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "tzdata.txt"
#: Lines of one publish_many.
STEP = 1000
#: Words in the table and in the picture.
WORDS = 15


def publish(
    producer: Producer, topic: str, lines: list[bytes], first: int = 0, every: int = 1
) -> int:
    """Publish every ``every``-th line, prefixed with its number; return how many were published."""
    published = 0
    numbered = list(enumerate(lines))[first::every]
    for start in range(0, len(numbered), STEP):
        bodies = [b"%d\t%b" % pair for pair in numbered[start:start + STEP]]
        published += producer.publish_many(topic, bodies, timeout=60.0)
    return published


def count_words(rows: Any) -> list[tuple[str, int]]:
    """Count the words of an archive with Spark SQL."""
    from pyspark.sql import functions as F

    line = F.regexp_replace(F.col("body").cast("string"), r"^\d+\t", "")
    return [
        (row["word"], row["count"])
        for row in rows.select(F.explode(F.regexp_extract_all(
            line, F.lit(r"([A-Za-z][A-Za-z_]{2,})"))).alias("word"))
        .groupBy("word").count().orderBy(F.desc("count"), "word").limit(WORDS).collect()
    ]


def ledger(rows: Any, published: int) -> dict[str, int]:
    """Compare the published lines with the archive."""
    from pyspark.sql import functions as F

    number = F.substring_index(F.col("body").cast("string"), "\t", 1)
    archived, distinct = rows.agg(F.count(F.lit(1)), F.count_distinct(number)).first()
    return {"published": published, "archived": archived, "duplicates": archived - distinct,
            "missing": published - distinct}


def table(title: tuple[str, str], rows: list[tuple[str, int]]) -> str:
    """Return two columns with a frame."""
    cells = [title, *((name, f"{value:,}") for name, value in rows)]
    left, right = (max(len(cell[column]) for cell in cells) for column in (0, 1))
    rule = f"+{'-' * (left + 2)}+{'-' * (right + 2)}+"
    lines = [f"| {name:<{left}} | {value:>{right}} |" for name, value in cells]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def run(lines: list[bytes], folder: Path, topic: str) -> int:
    """Run the pipeline; return the exit status."""
    nsqds = _addresses("NSQD")
    lookupds = _addresses("LOOKUPD")
    with contextlib.ExitStack() as stack:
        source: dict[str, Any] = {"nsqd": nsqds} if nsqds else {"lookupd": lookupds}
        if not nsqds and not lookupds:
            server = stack.enter_context(Nsqd())
            nsqds = [server.tcp_address]
            source = {"nsqd": nsqds, "nsqdHttp": server.http_address}
            say(f"embedded nsqd on {server.tcp_address}")
        say("starting Spark")
        spark = open_session("nsqclient pipeline", conf={
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2"})
        stack.callback(spark.stop)
        nsqclient.spark.print_progress(spark)
        with Producer(nsqds, lookupd_http_addresses=lookupds) as producer:
            published = publish(producer, topic, lines)
        say(f"published {published:,} lines to {topic}")
        archive(
            spark, topic=topic, channel="archive", path=str(folder / "archive"),
            checkpoint=str(folder / "checkpoint"), available_now=True, **source,
        ).awaitTermination()
        rows = spark.read.parquet(str(folder / "archive"))
        counts = count_words(rows)
        entries = ledger(rows, published)
    print(table(("word", "count"), counts))
    picture = folder / "words.svg"
    picture.write_text(draw(
        counts, "Most frequent words of the archive",
        f"{entries['archived']:,} messages of the topic {topic}, counted by Spark in Parquet",
    ), encoding="utf-8")
    print(table(("ledger", "messages"), list(entries.items())))
    print(f"the archive and the picture are in {os.path.relpath(folder)}: words.svg")
    if lookupds or _addresses("NSQD"):
        print(f"the topic {topic} stays on your nsqd, empty, until you delete it")
    good = not entries["duplicates"] and not entries["missing"]
    return 0 if good else 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _addresses(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    path = Path(os.environ.get("INPUT") or SAMPLE)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        print(f"cannot read INPUT: {exc}", file=sys.stderr)
        return 2
    if not lines:
        print(f"INPUT {path} has no lines", file=sys.stderr)
        return 2
    if _addresses("NSQD") and _addresses("LOOKUPD"):
        print("give NSQD or LOOKUPD, not both", file=sys.stderr)
        return 2
    topic = time.strftime("pipeline-%Y%m%d-%H%M%S")
    folder = Path("pipeline-output") / topic
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return run(lines, folder.resolve(), topic)
    except NSQError as exc:
        print(f"pipeline: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
