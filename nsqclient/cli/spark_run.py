"""Shared by the commands of ``nsqclient spark``: flags, a session, and waiting for a query."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import nsqclient.spark
from nsqclient.cli.flags import (
    BOOL, DURATION, NAME, PATH, STRING, CommandLineError, Kind, check_required,
)
from nsqclient.cli.tool_flags import SOURCES, ToolFlags, read_secrets
from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.spark.pipelines.sources import open_session, source_options
from nsqclient.spark.session import reason_of

logger: logging.Logger = logging.getLogger("nsqclient.cli")


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError("write key=value")
    return name.strip(), value


SETTING = Kind("key=value", _parse_setting, is_list=True, separator="\n", joint="=")

#: Seconds between two checks whether a query still runs. A signal is handled at once.
_CHECK_INTERVAL = 0.5
#: Seconds for the last lines of progress, which Spark reports late.
_LINES = 5.0


def add_queue(flags: ToolFlags, channel: str, *, required: bool) -> None:
    flags.add_topic()
    flags.add("channel", NAME, channel, "NSQ channel; use a separate channel for each query")
    flags.require("channel")
    flags.add_sources(required=required)


def read_queue(values: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = dict(values["consumer-opt"])
    if has_sources(values):
        options = read_secrets(values, options)
    if values["storage"]:
        options["storage"] = values["storage"]
    if values["nsqd-tcp-address"]:
        options["nsqd"] = ",".join(values["nsqd-tcp-address"])
    elif values["lookupd-http-address"]:
        options["lookupd"] = ",".join(values["lookupd-http-address"])
    return options


def add_source(flags: ToolFlags, channel: str) -> None:
    flags.group("Input")
    add_queue(flags, channel, required=False)
    flags.add("storage", STRING, "", "where the log is, which must outlive the driver: an absolute"
              " path, or s3://bucket/prefix (default: nsq-log in the checkpoint). Without addresses"
              " the query reads what owners (nsqclient spark ingest) write there")
    flags.group("Query")
    flags.add("checkpoint", PATH, "", "folder in which the query stores its position; required")
    flags.require("checkpoint")
    flags.add("available-now", BOOL, False, "read all available messages, then exit")


def add_session(flags: ToolFlags) -> None:
    flags.group("Spark")
    flags.add("master", STRING, "", "master URL of Spark (default: that of spark-submit, or"
              " local[*])")
    flags.add("conf", SETTING, (), "Spark setting; may be repeated")
    flags.add_common()


def add_trigger(flags: ToolFlags, default: float, why: str) -> None:
    flags.add("trigger", DURATION, default, "time between the starts of two batches; a full batch"
              f" starts earlier; {why}")


def read_source(values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a pipeline. Checks all that needs no Spark, which starts slowly."""
    if not values["storage"]:
        check_required(values, *SOURCES)
    options = read_queue(values)
    place = {name: values[name] for name in ("topic", "channel", "checkpoint")}
    source_options(**place, options=options)
    return {**place, "available_now": values["available-now"], **options}


def has_sources(values: dict[str, Any]) -> bool:
    return bool(values["nsqd-tcp-address"] or values["lookupd-http-address"])


def start_session(values: dict[str, Any], name: str) -> Any:
    logger.info("starting Spark")
    try:
        spark = open_session(name, values["master"], dict(values["conf"]))
    except (RuntimeError, OSError) as exc:  # pyspark has printed Java's errors before
        raise CommandLineError(f"Spark did not start: {exc}") from exc
    if spark.sparkContext.uiWebUrl:
        logger.info("Spark's pages are on %s", spark.sparkContext.uiWebUrl)
    return spark


def run_query(
    values: dict[str, Any], name: str, start: Callable[[Any], Any],
    between: Callable[[Any, bool], None] | None = None,
) -> int:
    """Run a query until its end or a signal; return the exit status.

    Args:
        start: is given the session; returns a StreamingQuery.
        between: called repeatedly with False while the query runs, and once with True after a query
            that ended by itself.
    """
    try:
        spark = start_session(values, name)
    except KeyboardInterrupt:  # raised by PySpark's handler
        return 0
    try:
        with Signals(Second.EXIT) as signals:
            printer = nsqclient.spark.print_progress(spark, sys.stderr)
            query = start(spark)
            while query.isActive and not signals.wait(_CHECK_INTERVAL):
                if between is not None:
                    between(spark, False)
            try:
                finish(query, signals.is_stopping)
            finally:
                printer.wait(_LINES)
            if between is not None and not signals.is_stopping:
                between(spark, True)
    finally:
        # A second signal ends the process at once; files on disk stay.
        spark.stop()
    return 0


def finish(query: Any, stopping: bool) -> None:
    if stopping:
        logger.info("stopping")
    try:
        query.stop()
        query.awaitTermination()
    except Exception as exc:  # pyspark's errors do not share a base class
        if not stopping:
            raise CommandLineError(f"the query failed: {reason_of(exc)}") from exc
        # Ctrl-C reaches Spark's own processes too, and one of them may have been in a call.
        logger.debug("while stopping: %s", exc)
