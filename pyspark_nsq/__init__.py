"""Lets Spark find the format ``nsq`` by itself: it looks for modules named ``pyspark_*``.

Spark imports this at its start, in every session, so nothing but the class is loaded here.
"""

from nsqclient.spark.source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
