#!/bin/sh
# Guess:   A data source whose schema says timestamp and whose reader yields aware datetimes works
#          whatever spark.sql.timestampType says.
# Happens: With TIMESTAMP_NTZ the text "timestamp" means a time without zone, and aware datetimes
#          fail with a bare AssertionError. The name timestamp_ltz, or a StructType, works with
#          both settings.
# Version: PySpark 4.3.0
# Source:  github.com/apache/spark, python/pyspark/sql/conversion.py (assert value.tzinfo is None)
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

from datetime import datetime, timezone
from pyspark.sql.datasource import DataSource, DataSourceReader

class Reader(DataSourceReader):
    def read(self, partition):
        yield (datetime(2026, 1, 1, tzinfo=timezone.utc),)

def source(text):
    class Source(DataSource):
        @classmethod
        def name(cls):
            return text
        def schema(self):
            return "at " + text
        def reader(self, schema):
            return Reader()
    return Source

found = {}
for text in ("timestamp", "timestamp_ltz"):
    spark.dataSource.register(source(text))
for setting in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
    spark.conf.set("spark.sql.timestampType", setting)
    for text in ("timestamp", "timestamp_ltz"):
        try:
            instant = spark.read.format(text).load().collect()[0][0].timestamp()
            found[setting, text] = "works" if instant == 1767225600 else f"gives {instant}"
        except Exception as error:
            found[setting, text] = "AssertionError" if "AssertionError" in str(error) else type(error).__name__
        print(f"PySpark {pyspark.__version__}, timestampType={setting}, schema '{text}': {found[setting, text]}")
spark.stop()
raise SystemExit(found["TIMESTAMP_NTZ", "timestamp"] == "works" or found["TIMESTAMP_NTZ", "timestamp_ltz"] != "works")
EOF
status=$?
[ $status -eq 0 ] || tail -n 20 "$work/log"
exit $status
