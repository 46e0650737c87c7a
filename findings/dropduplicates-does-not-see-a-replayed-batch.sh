#!/bin/sh
# Guess:   dropDuplicates or dropDuplicatesWithinWatermark before foreachBatch removes the rows of
#          a batch that is run again after a failure.
# Happens: All rows of the batch come to foreachBatch again: the state that knows them is written
#          when the batch fails, and the run again does not read it. The batch id is the same both
#          times.
# Version: PySpark 4.3.0
# Source:  github.com/apache/spark, sql/core .../execution/streaming/operators/stateful (state of
#          version N is read for batch N)
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

import os
os.mkdir("in")
with open("in/a.json", "w") as file:
    for number in range(100):
        file.write('{"id": %d, "at": "2026-01-01T00:00:00Z"}\n' % number)
seen = []

def keep(batch, number):
    seen.append((number, batch.count()))
    if len(seen) == 1:
        raise RuntimeError("the sink is down")

def run(unique, name):
    """Run the query, which fails in its first batch, until it ends well."""
    seen.clear()
    for _ in range(2):
        rows = spark.readStream.schema("id INT, at TIMESTAMP").json("in")
        query = (unique(rows).writeStream.foreachBatch(keep).option("checkpointLocation", name)
                 .trigger(availableNow=True).start())
        try:
            query.awaitTermination()
        except Exception:
            pass
    print(f"PySpark {pyspark.__version__}, {name}: (batch, rows) {seen}")
    return seen[:2] == [(0, 100), (0, 100)]

again = [run(lambda rows: rows.dropDuplicates(["id"]), "dropDuplicates"),
         run(lambda rows: rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]),
             "dropDuplicatesWithinWatermark")]
spark.stop()
raise SystemExit(not all(again))
EOF
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/log"
exit $status
