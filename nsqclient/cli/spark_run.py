"""What the commands of ``nsqclient spark`` share: flags, a session, and waiting for a query."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import nsqclient.spark
from nsqclient.cli.goflags import BOOL, DURATION, STRING, CommandLineError, FlagError, Kind
from nsqclient.cli.signals import Signals
from nsqclient.cli.tools import ToolFlags, check_name, check_sources, read_secrets
from nsqclient.spark.pipelines.sessions import open_session
from nsqclient.spark.pipelines.sources import source_options

logger = logging.getLogger("nsqclient.cli")

#: ``--conf``; :func:`start_session` reads the texts.
SETTING = Kind("key=value", str, is_list=True)

#: Seconds between two looks whether a query still runs. A signal is seen at once.
_LOOK = 0.5
#: Seconds for the last lines of progress, which Spark brings late.
_LINES = 5.0


class Query(Protocol):
    """What waiting needs of a StreamingQuery."""

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...

    def awaitTermination(self) -> object:
        """Return, or raise why it ended."""
        ...


def add_source(flags: ToolFlags, channel: str) -> None:
    """Add the flags of what a pipeline reads."""
    flags.group("What to read")
    flags.add("topic", STRING, "", "NSQ topic; required")
    flags.add("channel", STRING, channel, "NSQ channel; one for one query")
    flags.add_sources()
    flags.group("How")
    flags.add("checkpoint", STRING, "", "folder in which the query keeps its place; required")
    flags.add("spool-dir", STRING, "", "folder of the spool; it must outlive the driver (default:"
              " nsq-spool in the checkpoint)")
    flags.add("available-now", BOOL, False, "take what is there, and end")


def add_session(flags: ToolFlags) -> None:
    """Add the flags of Spark itself, and what every tool has."""
    flags.group("Spark")
    flags.add("master", STRING, "", "Spark's master (default: spark-submit's, or local[*])")
    flags.add("conf", SETTING, (), "a setting of Spark; may be repeated")
    flags.add("name", STRING, "", "name of the query, on Spark's pages and in progress lines")
    flags.add_common()


def add_trigger(flags: ToolFlags, default: float, why: str) -> None:
    """Add the flag that says how often."""
    flags.add("trigger", DURATION, default, f"time between the starts of two batches; {why}")


def read_source(values: dict[str, Any]) -> dict[str, Any]:
    """Read the arguments of a pipeline that the flags of :func:`add_source` say.

    Raises:
        CommandLineError, ConfigError: something is missing or wrong; Spark, which takes its time to
            start, is not needed to tell.
    """
    topic = check_name(values["topic"], "topic")
    channel = check_name(values["channel"], "channel")
    check_sources(values)
    if not values["checkpoint"]:
        raise CommandLineError("--checkpoint required")
    options = read_secrets(values, read_options(values["consumer-opt"], "consumer-opt"))
    if values["spool-dir"]:
        options["spoolDir"] = values["spool-dir"]
    if values["nsqd-tcp-address"]:
        options["nsqd"] = ",".join(values["nsqd-tcp-address"])
    else:
        options["lookupd"] = ",".join(values["lookupd-http-address"])
    source_options(topic, channel, values["checkpoint"], options)
    return {"topic": topic, "channel": channel, "checkpoint": values["checkpoint"],
            "available_now": values["available-now"], "query_name": values["name"] or None,
            **options}


def read_options(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Read ``key,value`` texts: options of the data source, of both its tables.

    Raises:
        FlagError: a text without a key.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, comma, value = text.partition(",")
        if not key.strip():
            raise FlagError(f"invalid value for flag -{flag}: write key,value")
        options[key.strip()] = value if comma else "true"
    return options


def start_session(values: dict[str, Any], name: str) -> Any:
    """Start Spark as the flags of :func:`add_session` say.

    Raises:
        CommandLineError: Spark cannot start; the reason is on stderr.
        FlagError: a ``--conf`` that is none.
    """
    conf: dict[str, str] = {}
    for text in values["conf"]:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise FlagError(f'invalid value "{key}" for flag -conf: write key=value')
        conf[key.strip()] = value
    logger.info("starting Spark")
    try:
        spark = open_session(name, values["master"], conf)
    except (RuntimeError, OSError) as exc:  # pyspark's own words come before, from Java
        raise CommandLineError(f"Spark did not start: {exc}") from exc
    if spark.sparkContext.uiWebUrl:
        logger.info("Spark's pages are on %s", spark.sparkContext.uiWebUrl)
    return spark


def run_query(
    values: dict[str, Any], name: str, start: Callable[[Any], Query],
    between: Callable[[Any, bool], None] | None = None,
) -> int:
    """Start Spark and a query, print a line for each batch, and wait for its end or a signal.

    Args:
        start: is given the session.
        between: called now and then while the query runs (False), and once after a query that
            ended by itself (True).

    Returns: the exit status: 0 when the query was stopped or has ended.

    Raises:
        CommandLineError: the query failed.
    """
    try:
        spark = start_session(values, name)
    except KeyboardInterrupt:
        return 130
    try:
        with Signals() as signals:
            printer = nsqclient.spark.print_progress(spark, sys.stderr)
            query = start(spark)
            while query.isActive and not signals.wait(_LOOK):
                if between is not None:
                    between(spark, False)
            try:
                finish(query, signals.is_stopping)
            finally:
                printer.wait(_LINES)
            if between is not None and not signals.is_stopping:
                between(spark, True)
    finally:
        # A second signal ends the process at once, as it should: what is on disk is on disk.
        spark.stop()
    return 0


def finish(query: Query, stopping: bool) -> None:
    """Stop a query, or tell why it has ended.

    Raises:
        CommandLineError: it failed.
    """
    if stopping:
        logger.info("stopping")
    try:
        query.stop()
        query.awaitTermination()
    except Exception as exc:  # pyspark's errors have no root of their own here
        if not stopping:
            raise CommandLineError(f"the query failed: {reason(exc)}") from exc
        # Ctrl-C reaches Spark's own processes too, and one of them may have been in a call.
        logger.debug("while stopping: %s", exc)


def reason(exc: Exception) -> str:
    """What a user needs of Spark's long error: its first line, and the Python error within."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("nsqclient.") and "Error: " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    return lines[0] if lines else type(exc).__name__
