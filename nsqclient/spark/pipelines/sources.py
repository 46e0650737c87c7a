"""The first steps of a pipeline: a session, checked options, a stream, a trigger."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.spark.options import STREAM, read_options
from nsqclient.spark.session import check_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOPBACK = "127.0.0.1"


def open_session(
    name: str, master: str = "", conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, with the data source registered.

    Args:
        name: name of the application.
        master: Spark's master; empty: spark-submit's, or all processors of this machine. In local
            mode, Spark listens on loopback only. Unless spark-submit has started this process,
            Spark logs only errors and shows no progress bar.
        conf: Spark's settings.
    """
    # A driver that is killed in its first write leaves a temporary file in the checkpoint, which
    # this check of Spark would refuse.
    settings = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
                **(conf or {})}
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit
    try:
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise ConfigError(f"Spark is missing ({exc}): pip install 'nsqclient[spark]'") from exc
    if not submitted:
        master = master or settings.get("spark.master") or "local[*]"
        _check_java()
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            settings.setdefault("spark.driver.host", _LOOPBACK)
            settings.setdefault("spark.driver.bindAddress", _LOOPBACK)
        # The progress bar would overwrite the lines of ProgressPrinter.
        settings.setdefault("spark.ui.showConsoleProgress", "false")
        # Executors run this Python, not the first on their path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Tasks on this machine can import the modules that this process can import.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            dict.fromkeys(path or os.getcwd() for path in sys.path))
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if not submitted:
        # The warnings of Spark's start would hide nsqclient's own lines.
        spark.sparkContext.setLogLevel("ERROR")
    nsqclient.spark.register(spark)
    return spark


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and os.path.exists(os.path.join(home, "bin", "java")):
        return
    if shutil.which("java") is None:
        raise ConfigError(
            "there is no Java, which Spark needs: install a Java 17 runtime (on Debian:"
            " apt install openjdk-17-jre-headless), or set JAVA_HOME")


def source_options(
    topic: str, channel: str, checkpoint: str, options: Mapping[str, Any], every: Duration = 0.0,
) -> dict[str, str]:
    """Complete and check the options of a source.

    The log is ``<checkpoint>/nsq-log`` unless ``storage`` is given.

    Args:
        every: seconds between the starts of two batches; a full batch starts earlier. 0: each
            batch starts when the last one has ended.
    """
    if not checkpoint:
        raise ConfigError("give a checkpoint: a folder in which the query keeps its place")
    found = {"topic": topic, "channel": channel,
             **{key: option_text(options[key]) for key in options}}
    names = {key.strip().lower() for key in found}
    delay = round(to_seconds(every, "every") * 1000)
    if delay and "maxtriggerdelayms" not in names:
        found["maxTriggerDelayMs"] = str(delay)
    if "storage" not in names:
        # Relative to the working directory, as Spark's checkpoint.
        found["storage"] = os.path.join(os.getcwd(), local_path(checkpoint), "nsq-log")
        if not names & {"nsqd", "lookupd"}:
            raise ConfigError("give nsqd (host:port, TCP) or lookupd (host:port, HTTP); or storage,"
                              " where owners write")
    read_options(found, STREAM)
    return found


def read_topic(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Read a topic as a stream, with the result of :func:`source_options`."""
    import pyspark

    nsqclient.spark.register(spark)
    check_version(pyspark.__version__, streams=True)
    frame: DataFrame = spark.readStream.format("nsq").options(**options).load()
    return frame


def local_path(folder: str) -> str:
    # Hadoop takes %20, # and ? literally.
    local = re.sub(r"^file:(//[^/]*)?(?=/)", "", folder)
    if "://" in local:
        raise ConfigError(
            f"the checkpoint {folder} is not on a mounted file system, so the log cannot stand"
            " beside it: give storage, a folder that outlives the driver, or s3://bucket/prefix")
    return local.rstrip("/") or "/"


def trigger(available_now: bool) -> dict[str, Any]:
    """Build the arguments of Spark's ``trigger``.

    The source delays batches itself, because a time in the trigger would delay full batches too.
    """
    return {"availableNow": True} if available_now else {"processingTime": "0 seconds"}


def option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):  # an offset
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
