"""NSQ on Apache Spark, through PySpark: the data source ``nsq``.

``options`` are the options of both sides, ``schema`` the columns; ``spool`` is the write-ahead
log, ``ingest`` fills it, ``drained`` is what drains took; ``stream_reader`` and ``batch_reader``
are what Spark calls, ``source`` what it registers; ``progress`` prints a line for each batch.
Importing this package needs neither pyspark nor Java; using it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    from nsqclient.spark.drained import Snapshot
    from nsqclient.spark.progress import ProgressPrinter
    from pyspark.sql import SparkSession

__all__ = ["print_progress", "register", "release", "snapshots"]


def register(spark: SparkSession) -> None:
    """Make the format ``nsq`` known to a session.

    Raises:
        ConfigError: this pyspark is older than 4.2.
    """
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < (4, 2):
        raise ConfigError(
            f"pyspark {pyspark.__version__}: the data source nsq needs 4.2 or newer:"
            " pip install 'nsqclient[spark]'"
        )
    from nsqclient.spark.source import LocalNsqDataSource, NsqDataSource

    master = spark.conf.get("spark.master", "") or ""
    spark.dataSource.register(
        LocalNsqDataSource if master.startswith("local") else NsqDataSource
    )


def print_progress(spark: SparkSession, stream: TextIO | None = None) -> ProgressPrinter:
    """Print a line for each batch of each streaming query of a session.

    Args:
        stream: where to; stderr by default.

    Returns: the listener, for ``spark.streams.removeListener``.
    """
    from nsqclient.spark.progress import ProgressPrinter

    printer = ProgressPrinter(stream)
    spark.streams.addListener(printer)
    return printer


def snapshots(spool_dir: str) -> list[Snapshot]:
    """List what drains have taken and nobody has released; see ``nsqclient.spark.drained``."""
    from nsqclient.spark import drained

    return drained.snapshots(spool_dir)


def release(spool_dir: str, name: str) -> None:
    """Delete a snapshot; see ``nsqclient.spark.drained``."""
    from nsqclient.spark import drained

    drained.release(spool_dir, name)
