"""Starts Spark, and what a session needs: the versions, the workers' Python, no ``saveAsTable``."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: The first with every class of the sink, of peeks and of drains.
_OLDEST = (4, 1)
#: The first where a source can limit its batches, and end with ``trigger(availableNow=True)``.
_STREAMING = (4, 2)
_LOOPBACK = "127.0.0.1"
#: What a worker imports before it can read or write.
_IMPORTS = "import nsqclient, pyarrow"
#: Seconds; on a cold disk the imports take some.
_CHECK_TIMEOUT = 60.0


def check_version(version: str) -> None:
    """Check a version for the sink, for peeks and for drains."""
    if _parse(version) < _OLDEST:
        raise ConfigError(
            f"the data source nsq needs PySpark 4.1, for streaming reads 4.2; this is {version}:"
            " pip install --upgrade 'nsqclient[spark]'")


def check_streaming(version: str) -> None:
    """Check a version for ``readStream``."""
    if _parse(version) < _STREAMING:
        raise ConfigError(
            f"streaming reads need PySpark 4.2; this is {version}, which can write, peek and drain:"
            " pip install --upgrade 'nsqclient[spark]'")


def _parse(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def choose_python(context: SparkContext, is_local: bool) -> None:
    """See to it that Spark's Python processes can import nsqclient.

    Without ``PYSPARK_PYTHON`` they run the first ``python3`` on the path. On one machine they run
    this program's Python instead; elsewhere it is checked here, as the driver starts some too.
    """
    if is_local and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    elif shutil.which(context.pythonExec) != sys.executable:
        check_python(context.pythonExec, _sent_files(context))


def check_python(python: str, sent: Sequence[str] = ()) -> None:
    """Check that a Python can import what a worker needs."""
    paths = [path for path in (os.environ.get("PYTHONPATH"), *sent) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            [python, "-c", _IMPORTS], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_CHECK_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as exc:
        problem = str(exc)
    else:
        if done.returncode == 0:
            return
        problem = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    raise ConfigError(
        f"Spark's workers run {shutil.which(python) or python}, which cannot import nsqclient and"
        f" pyarrow ({problem}): set the environment variable PYSPARK_PYTHON to {sys.executable} or"
        " another Python that has both, before the session is created")


def refuse_save_as_table() -> None:
    """Make ``saveAsTable`` refuse the format ``nsq``. May be called again.

    Spark would publish the rows and then keep a table that nobody can read; a data source in
    Python does not learn that its rows are for a table.
    """
    from pyspark.sql.readwriter import DataFrameWriter

    save = DataFrameWriter.saveAsTable
    if hasattr(save, "_refuses_nsq"):
        return

    @functools.wraps(save)
    def save_as_table(
        self: DataFrameWriter, name: str, format: str | None = None, *args: Any, **options: Any
    ) -> None:
        if (format or self._jwrite.source()).lower() == "nsq":
            raise ConfigError(
                "saveAsTable does not work with nsq, which keeps no tables: write"
                " df.write.format('nsq').mode('append').options(...).save()")
        save(self, name, format, *args, **options)

    save_as_table._refuses_nsq = True  # type: ignore[attr-defined] # marks the wrapper
    DataFrameWriter.saveAsTable = save_as_table  # Spark has no hook


def _sent_files(context: SparkContext) -> list[str]:
    from pyspark import SparkFiles

    return [os.path.join(SparkFiles.getRootDirectory(), name)
            for name in context._python_includes]


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
        import nsqclient.spark
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
