"""A streaming job as a user would write it: nsq to Parquet. Settings are a JSON text.

Prints a line for each batch, and at the end what the sink has committed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from pyspark.sql import SparkSession  # noqa: E402 - after the environment it reads

import nsqclient.spark  # noqa: E402 - after the path it is on
from tests.spark.jobs import FAST_START  # noqa: E402 - the same


def say(**words):
    """Report to the test."""
    print("JOB " + json.dumps(words), flush=True)


def open_session(settings):
    """Start Spark on loopback, without its pages."""
    builder = SparkSession.builder.master(settings["master"])
    root = str(Path(__file__).resolve().parents[3])
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        # As the manual says: else a driver that is killed in its first write is the last one.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        "spark.executor.extraJavaOptions": FAST_START,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([root, *sys.path]),
        **settings.get("conf", {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    nsqclient.spark.register(spark)
    return spark


def main():
    """Run until all is read (``now``), or until killed."""
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
        seen = -1
        pause = threading.Event()
        while query.isActive:
            for progress in query.recentProgress:
                if progress["batchId"] > seen:
                    seen = progress["batchId"]
                    say(batch=seen, rows=progress["numInputRows"],
                        source=progress["sources"][0].get("latestOffset"))
            pause.wait(0.1)
        query.awaitTermination()
    except Exception as exc:
        say(state="failed", error=str(exc))
        raise SystemExit(3) from None
    rows = spark.read.parquet(settings["out"]) if os.path.isdir(settings["out"]) else None
    count = 0 if rows is None else rows.count()
    distinct = 0 if rows is None else rows.select("body").distinct().count()
    again = 0 if rows is None else rows.where("attempts > 1").count()
    say(state="done", rows=count, distinct=distinct, again=again)
    spark.stop()


if __name__ == "__main__":
    main()
