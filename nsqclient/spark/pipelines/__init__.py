"""Pipelines on the data source ``nsq``.

``archive`` writes a topic to files by date and hour. ``compact`` merges small files of an archive
into large ones. ``stream`` transforms messages and publishes the results. ``replay`` writes the
messages in a log again. All need pyspark when they are called, not when they are imported, and
raise ConfigError for a wrong argument or option before they use Spark.
"""

from nsqclient.spark.pipelines.archiving import archive
from nsqclient.spark.pipelines.compacting import Compaction, compact
from nsqclient.spark.pipelines.replaying import Replayed, replay
from nsqclient.spark.pipelines.streaming import stream

__all__ = ["Compaction", "Replayed", "archive", "compact", "replay", "stream"]
