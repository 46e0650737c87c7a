"""A streaming job as a user would write it: nsq to Parquet. Settings are a JSON text.

Prints a line when it has started, and at the end the committed rows.
"""

import json
import os
import sys
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from pyspark.sql import SparkSession  # noqa: E402 - after the environment it reads

import nsqclient.spark  # noqa: E402 - after the path it is on
from tests.spark.jobs import CONF, FAST_START  # noqa: E402 - the same


def say(**words):
    print("JOB " + json.dumps(words), flush=True)


def open_session(settings):
    builder = SparkSession.builder.master(settings["master"])
    for name, value in {
        **CONF,
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": FAST_START,
        # As the manual says: else a driver that is killed in its first write is the last one.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        **settings.get("conf", {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    nsqclient.spark.register(spark)
    return spark


def main():
    """Run until all messages are read (``now``), or until the process is killed."""
    settings = json.loads(sys.argv[1])
    spark = open_session(settings)
    frame = spark.readStream.format("nsq").options(**settings["options"]).load()
    writer = frame.writeStream.format("parquet").option("path", settings["out"]).option(
        "checkpointLocation", settings["checkpoint"])
    if settings.get("now"):
        writer = writer.trigger(availableNow=True)
    try:
        query = writer.start()
        say(state="started")
        query.awaitTermination()
    except Exception as exc:
        say(state="failed", error=str(exc))
        raise SystemExit(3) from None
    rows = spark.read.parquet(settings["out"]) if os.path.isdir(settings["out"]) else None
    count = 0 if rows is None else rows.count()
    distinct = 0 if rows is None else rows.select("body").distinct().count()
    say(state="done", rows=count, distinct=distinct)
    spark.stop()


if __name__ == "__main__":
    main()
