"""Ready-made pipelines on the data source ``nsq``: a topic to files, a topic to a topic.

``archiving`` writes a topic to Parquet or Delta by date and hour. ``compacting`` merges many small
files into few large ones. ``streaming`` transforms and publishes messages; ``transforms`` are SQL
texts and Python functions. ``replaying`` writes the messages in a log once more. All are plain
functions, which need pyspark when they are called, not when they are imported. They raise
ConfigError for a wrong argument or option before they use Spark.
"""

from nsqclient.spark.pipelines.archiving import archive
from nsqclient.spark.pipelines.compacting import Compaction, compact
from nsqclient.spark.pipelines.replaying import Replayed, replay
from nsqclient.spark.pipelines.streaming import stream

__all__ = ["Compaction", "Replayed", "archive", "compact", "replay", "stream"]
