"""Ready-made pipelines on the data source ``nsq``: a topic to files, a topic to a topic.

``archiving`` writes a topic to Parquet or Delta by date and hour, ``compacting`` makes few large
files of many small ones; ``streaming`` transforms and publishes, ``transforms`` are SQL texts and
Python functions; ``replaying`` writes once more what a log still has. The others read with
``sources``. They are plain functions; importing them needs no pyspark,
calling them does. A wrong argument or option is a ConfigError, before Spark is asked for anything.
"""

from nsqclient.spark.pipelines.archiving import archive
from nsqclient.spark.pipelines.compacting import Compaction, compact
from nsqclient.spark.pipelines.replaying import Replayed, replay
from nsqclient.spark.pipelines.streaming import stream

__all__ = ["Compaction", "Replayed", "archive", "compact", "replay", "stream"]
