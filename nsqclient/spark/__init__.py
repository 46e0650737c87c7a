"""NSQ on Apache Spark, through PySpark: the data source ``nsq``.

``options`` are the options and the columns of both sides; ``shards`` is the write-ahead
log on a ``storage``, ``ingest`` fills it, ``replay`` has the results of drains; Spark registers
``source``, and calls ``reader``, ``batch_reader`` and ``publishing``; ``progress`` prints a line
for each batch.
Importing this package needs neither pyspark nor Java; using it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from nsqclient.spark.reading.replay import Snapshot
    from nsqclient.spark.reading.progress import ProgressPrinter
    from pyspark.sql import SparkSession

__all__ = ["print_progress", "register", "release", "snapshots"]


def register(spark: SparkSession) -> None:
    """Make the format ``nsq`` known to a session. ``spark.newSession()`` is another session.

    On one machine the workers run this program's Python, unless ``PYSPARK_PYTHON`` names one.

    Raises:
        ConfigError: this pyspark is older than 4.1 (streaming reads need 4.2), or the Python of the
            workers cannot import nsqclient.
    """
    import pyspark

    from nsqclient.spark.session import check_version, choose_python, refuse_tables

    check_version(pyspark.__version__)
    from nsqclient.spark.source import NsqDataSource

    is_local = (spark.conf.get("spark.master", "") or "").startswith("local")
    context = getattr(spark, "_sc", None)  # not with Spark Connect, whose server has the workers
    if context is not None:
        choose_python(context, is_local)
        refuse_tables()
    spark.dataSource.register(NsqDataSource)


def print_progress(spark: SparkSession, stream: TextIO | None = None) -> ProgressPrinter:
    """Print a line for each batch of each streaming query of a session.

    Args:
        stream: where to; stderr by default.

    Returns: the listener, for ``spark.streams.removeListener``.
    """
    from nsqclient.spark.reading.progress import ProgressPrinter

    printer = ProgressPrinter(stream)
    spark.streams.addListener(printer)
    return printer


def snapshots(storage: str) -> list[Snapshot]:
    """List the snapshots of drains that were not released. See ``spark.reading.replay``."""
    from nsqclient.spark.reading import replay

    return replay.snapshots(storage)


def release(storage: str, name: str) -> None:
    """Delete a snapshot; see ``nsqclient.spark.reading.replay``."""
    from nsqclient.spark.reading import replay

    replay.release(storage, name)
