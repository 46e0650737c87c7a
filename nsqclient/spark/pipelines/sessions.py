"""Starts Spark for a command, or joins the session that spark-submit has started."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import nsqclient.spark
from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"


def open_session(
    name: str, master: str = "", conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, with the data source registered.

    Args:
        name: of the application.
        master: Spark's master; empty: spark-submit's, or all processors of this machine. In local
            mode everything listens on loopback only. Unless spark-submit started us, Spark logs
            errors only, and draws no bar of its own.
        conf: Spark's settings.
    """
    # A driver that is killed in its first write leaves a temporary file in the checkpoint, which
    # Spark would then never accept.
    settings = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
                **(conf or {})}
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started us
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
        # It would be drawn over our lines of progress.
        settings.setdefault("spark.ui.showConsoleProgress", "false")
        # Executors run the Python that runs us, not the first on their path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # What can be imported here can be imported by the tasks of this machine.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            dict.fromkeys(path or os.getcwd() for path in sys.path))
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if not submitted:
        # Warnings of Spark's own start do not help a user; our lines and errors do.
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
