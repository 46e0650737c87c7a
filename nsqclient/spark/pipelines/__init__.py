"""Ready-made pipelines on the data source ``nsq``: a topic to files, a topic to a topic.

``archiving`` writes a topic to Parquet or Delta by date and hour, ``compacting`` makes few large
files of many small ones; ``streaming`` transforms and publishes, ``transforms`` are SQL texts and
Python functions, ``bad_rows`` finds the rows that a transform fails on. ``sources`` is what all
read with, ``sessions`` starts Spark, ``folders`` are files wherever Spark keeps them.
They are plain functions; importing them needs no pyspark, calling them does.
"""

from nsqclient.spark.pipelines.archiving import archive
from nsqclient.spark.pipelines.compacting import Compaction, compact
from nsqclient.spark.pipelines.streaming import stream

__all__ = ["Compaction", "archive", "compact", "stream"]
