"""NSQ on Apache Spark, through PySpark: the data source ``nsq``.

``options`` are the options of both sides, ``schema`` the columns; ``spool`` is the write-ahead
log, ``ingest`` fills it; ``stream_reader`` is what Spark calls, ``source`` what it registers.
Importing this package needs neither pyspark nor Java; using it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


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
