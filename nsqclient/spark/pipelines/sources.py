"""What every pipeline reads with: checked options, a log beside the checkpoint, a trigger."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import nsqclient.spark
from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.spark.options import STREAM, read_options
from nsqclient.spark.session import check_streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source_options(
    topic: str, channel: str, checkpoint: str, options: Mapping[str, Any], every: Duration = 0.0,
) -> dict[str, str]:
    """Complete and check the options of a source.

    The log is ``<checkpoint>/nsq-log`` unless ``storage`` is given.

    Args:
        every: seconds between the starts of two batches, unless one is full before; 0: each as
            soon as the last has ended. The source paces the query, see :func:`trigger`.
    """
    if not checkpoint:
        raise ConfigError("give a checkpoint: a folder in which the query keeps its place")
    found = {"topic": topic, "channel": channel,
             **{key: option_text(options[key]) for key in options}}
    names = {key.strip().lower() for key in found}
    delay = round(to_seconds(every, "every") * 1000)
    if delay and "maxtriggerdelayms" not in names:
        found["maxTriggerDelayMs"] = str(delay)
    if "storage" not in names:
        # Spark, too, begins a relative checkpoint in the working directory.
        found["storage"] = os.path.join(os.getcwd(), local_path(checkpoint), "nsq-log")
        if not names & {"nsqd", "lookupd"}:
            raise ConfigError("give nsqd (host:port, TCP) or lookupd (host:port, HTTP); or storage,"
                              " where owners write")
    read_options(found, STREAM)
    return found


def read_topic(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Read a topic as a stream, with what :func:`source_options` returned."""
    import pyspark

    nsqclient.spark.register(spark)
    check_streaming(pyspark.__version__)
    frame: DataFrame = spark.readStream.format("nsq").options(**options).load()
    return frame


def local_path(folder: str) -> str:
    """Return the path of a folder on this machine."""
    # As Hadoop reads it, which takes %20, # and ? for themselves.
    local = re.sub(r"^file:(//[^/]*)?(?=/)", "", folder)
    if "://" in local:
        raise ConfigError(
            f"the checkpoint {folder} is not on a mounted file system, so the log cannot stand"
            " beside it: give storage, a folder that outlives the driver, or s3://bucket/prefix")
    return local.rstrip("/") or "/"


def trigger(available_now: bool) -> dict[str, Any]:
    """Build the arguments of Spark's ``trigger``.

    With a time there Spark would begin no batch before it, however many messages wait.
    """
    return {"availableNow": True} if available_now else {"processingTime": "0 seconds"}


def option_text(value: Any) -> str:
    """Write a value as Spark's options are."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):  # an offset
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
