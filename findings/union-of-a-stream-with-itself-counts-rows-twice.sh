#!/bin/sh
# Guess:   df.union(df) of a stream reads the source twice, with two sources in the progress.
# Happens: It is one source with one latestOffset, but partitions() and read() run twice for each
#          batch, and numInputRows counts each row twice.
# Version: PySpark 4.3.0
# Source:  github.com/apache/spark, MicroBatchExecution.scala (toStreamingExecutionRelation caches
#          equal relations)
# Seen:    2026-11-28
# Needs:   java 17 or newer, python3.11 or newer with venv, pip
set -u
work=$(mktemp -d) || exit 77
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
command -v java >/dev/null || skip "no java"
python=${PYTHON:-python3}
"$python" -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install pyspark==4.3.0 pyarrow==26.0.1 >"$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; skip "pip could not install pyspark 4.3.0"; }
cd "$work" || exit 1
export PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1
"$work/venv/bin/python" - 2>"$work/log" <<'EOF'
import pyspark
from pyspark.sql import SparkSession

spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
         .getOrCreate())

import json, os
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

CALLS = os.path.abspath("calls")

def note(name):
    with open(CALLS, "a") as file:
        file.write(name + "\n")

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}
    def latestOffset(self):
        return {"n": 10}
    def partitions(self, start, end):
        note("partitions")
        return [InputPartition(list(range(start["n"], end["n"])))]
    def read(self, partition):
        note("read")
        for number in partition.value:
            yield (number,)
    def commit(self, end):
        pass

class Source(DataSource):
    @classmethod
    def name(cls):
        return "numbers"
    def schema(self):
        return "n INT"
    def streamReader(self, schema):
        return Reader()

spark.dataSource.register(Source)
rows = spark.readStream.format("numbers").load()
query = rows.union(rows).writeStream.format("memory").queryName("out").start()
query.processAllAvailable()
progress = [each for each in query.recentProgress if each["numInputRows"]]
query.stop()
calls = open(CALLS).read().split()
count = spark.table("out").count()
sources = len(progress[0]["sources"])
print(f"PySpark {pyspark.__version__}: 10 numbers, {count} rows out, {sources} source,"
      f" numInputRows {progress[0]['numInputRows']}, read() ran {calls.count('read')} times,"
      f" partitions() {calls.count('partitions')} times")
spark.stop()
raise SystemExit((count, sources, progress[0]["numInputRows"]) != (20, 1, 20))
EOF
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/log"
exit $status
