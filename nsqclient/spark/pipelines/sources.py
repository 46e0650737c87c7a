"""What every pipeline reads with: checked options, a spool beside the checkpoint, a trigger."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.spark.options import STREAM, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source_options(
    topic: str, channel: str, checkpoint: str, options: Mapping[str, Any]
) -> dict[str, str]:
    """Complete and check the options of a source.

    The spool is ``<checkpoint>/nsq-spool`` unless ``spoolDir`` is given.

    Raises:
        ConfigError: an option is wrong, or the checkpoint is no local path and no spoolDir is
            given.
    """
    if not checkpoint:
        raise ConfigError("give a checkpoint: a folder in which the query keeps its place")
    found = {"topic": topic, "channel": channel, **{key: _text(options[key]) for key in options}}
    if not any(key.strip().lower() == "spooldir" for key in found):
        found["spoolDir"] = f"{local_path(checkpoint)}/nsq-spool"
    read_options(found, STREAM)
    return found


def read_topic(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Read a topic as a stream, with what :func:`source_options` returned."""
    nsqclient.spark.register(spark)
    frame: DataFrame = spark.readStream.format("nsq").options(**options).load()
    return frame


def local_path(folder: str) -> str:
    """Return the path of a folder on this machine.

    Raises:
        ConfigError: it is elsewhere, where no spool can be.
    """
    # As Hadoop reads it, which takes %20, # and ? for themselves.
    local = re.sub(r"^file:(//[^/]*)?(?=/)", "", folder)
    if "://" in local:
        raise ConfigError(
            f"the checkpoint {folder} is not on a mounted file system, so the spool cannot stand"
            " beside it: give spoolDir, a folder that outlives the driver")
    return local.rstrip("/") or "/"


def trigger(every: Duration, available_now: bool) -> dict[str, Any]:
    """Build the arguments of Spark's ``trigger``.

    Args:
        every: seconds between the starts of two batches; 0: each as soon as the last has ended.
        available_now: take what is there, and end.

    Raises:
        ConfigError: ``every`` is no duration.
    """
    if available_now:
        return {"availableNow": True}
    return {"processingTime": f"{round(to_seconds(every, 'every') * 1000)} milliseconds"}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
