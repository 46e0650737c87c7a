"""NSQ on Apache Spark, through PySpark: the data source ``nsq``.

``source`` is what Spark registers; it creates the readers in ``reading`` and the writers in
``publishing``. ``ingest`` receives messages into the write-ahead logs of ``shards``, which lie on a
``storage``. Importing this package needs neither pyspark nor Java; using it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from nsqclient.spark.reading.replay import Snapshot
    from nsqclient.spark.reading.progress import ProgressPrinter
    from pyspark.sql import SparkSession

__all__ = ["print_progress", "register", "release", "snapshots"]


def register(spark: SparkSession) -> None:
    """Register the format ``nsq`` with a session. ``spark.newSession()`` is another session.

    In local mode, Spark's workers then run the Python of this program, unless ``PYSPARK_PYTHON``
    names another one.

    Raises:
        ConfigError: pyspark is older than 4.1 (4.2 for streaming reads), or the Python of the
            workers cannot import nsqclient.
    """
    import pyspark

    from nsqclient.spark.session import check_version, choose_python, refuse_tables

    check_version(pyspark.__version__)
    from nsqclient.spark.source import NsqDataSource

    is_local = (spark.conf.get("spark.master", "") or "").startswith("local")
    context = getattr(spark, "_sc", None)  # None with Spark Connect, whose server has the workers
    if context is not None:
        choose_python(context, is_local)
        refuse_tables()
    spark.dataSource.register(NsqDataSource)


def print_progress(spark: SparkSession, stream: TextIO | None = None) -> ProgressPrinter:
    """Print a line for each batch of the session's streaming queries.

    Args:
        stream: the output; stderr by default.

    Returns: the listener, for ``spark.streams.removeListener``.
    """
    from nsqclient.spark.reading.progress import ProgressPrinter

    printer = ProgressPrinter(stream)
    spark.streams.addListener(printer)
    return printer


def snapshots(storage: str) -> list[Snapshot]:
    """List the snapshots of a storage, by name. Raises StorageError if it cannot be used."""
    from nsqclient.spark.reading import replay

    return replay.snapshots(storage)


def release(storage: str, name: str) -> None:
    """Delete a snapshot. DataFrames that were loaded from it can no longer be computed.

    Raises:
        ConfigError: no snapshot has this name.
        LogInUseError: a drain is filling it.
        StorageError: the storage cannot be used.
    """
    from nsqclient.spark.reading import replay

    replay.release(storage, name)
