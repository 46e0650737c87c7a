"""Checks of a session: PySpark's version, its workers' Python, no tables; short error texts."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nsqclient.errors import ConfigError, NSQError

if TYPE_CHECKING:
    from pyspark import SparkContext

#: The first version of PySpark with the classes for sinks and batch reads.
_OLDEST = (4, 1)
#: The first version in which a source can limit its batches and support ``availableNow``.
_STREAMING = (4, 2)
#: Modules that a worker must be able to import.
_IMPORTS = "import nsqclient, pyarrow"
_OUR_ERROR = re.compile(r"\bnsqclient\.[\w.]*Error: (.+)")
_NO_TABLES = ("does not work with nsq, which keeps no tables: write"
              " df.write.format('nsq').mode('append').options(...).save()")
#: Seconds for these imports, which are slow from a cold disk.
_CHECK_TIMEOUT = 60.0


def check_version(version: str, *, streams: bool = False) -> None:
    if tuple(map(int, version.split(".")[:2])) < (_STREAMING if streams else _OLDEST):
        raise ConfigError(
            f"the data source nsq needs PySpark 4.1, for streaming reads 4.2; this is {version}:"
            " pip install --upgrade 'nsqclient[spark]'")


def choose_python(context: SparkContext, is_local: bool) -> None:
    """Ensure that Spark's Python processes can import nsqclient.

    Without ``PYSPARK_PYTHON``, Spark would run the first ``python3`` on the path. In local mode, it
    is told to run the Python of this program instead. On a cluster, this checks the Python that the
    driver's own processes run.
    """
    if is_local and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    elif shutil.which(context.pythonExec) != sys.executable:
        from pyspark import SparkFiles

        check_python(context.pythonExec, [
            os.path.join(SparkFiles.getRootDirectory(), name)
            for name in context._python_includes])


def check_python(python: str, sent: Sequence[str] = ()) -> None:
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


@contextlib.contextmanager
def brief_errors() -> Iterator[None]:
    """Let Spark's exception begin with an NSQError, not with a traceback of Spark's process.

    The process ends with this error, so no other traceback is hidden.
    """
    try:
        yield
    except NSQError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def reason_of(error: Exception | str) -> str:
    """Extract the useful sentence of Spark's exception: an NSQError in it, or its first line."""
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return str(ours[-1]) if ours else (lines or [type(error).__name__])[0]


def refuse_tables() -> None:
    """Make ``saveAsTable`` and ``writeTo(...).using`` refuse the format ``nsq``. Idempotent.

    Spark would publish the rows and then keep a table that nobody can read; a data source in
    Python does not learn that its rows are for a table.
    """
    from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

    save = DataFrameWriter.saveAsTable
    if hasattr(save, "_refuses_nsq"):
        return

    @functools.wraps(save)
    def save_as_table(
        self: DataFrameWriter, name: str, format: str | None = None, *args: Any, **options: Any
    ) -> None:
        if (format or self._jwrite.source()).lower() == "nsq":
            raise ConfigError(f"saveAsTable {_NO_TABLES}")
        save(self, name, format, *args, **options)

    use = DataFrameWriterV2.using

    @functools.wraps(use)
    def using(self: DataFrameWriterV2, provider: str) -> DataFrameWriterV2:
        if provider.lower() == "nsq":
            raise ConfigError(f"writeTo {_NO_TABLES}")
        return use(self, provider)

    save_as_table._refuses_nsq = True  # type: ignore[attr-defined] # marks the wrapper
    DataFrameWriter.saveAsTable = save_as_table  # Spark has no hook
    DataFrameWriterV2.using = using
