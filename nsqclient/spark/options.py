"""The options of the Spark data source: one table for reading and one for writing.

Spark passes the options as text, and their names are not case-sensitive. A row of a table is a
field of ``ReadOptions`` or ``WriteOptions``. Every option of :class:`nsqclient.Config` is accepted
too, with its own name and notation. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Union
from urllib.parse import urlsplit

from nsqclient.config import OPTIONS, Config
from nsqclient.discovery import check_addresses
from nsqclient.errors import ConfigError
from nsqclient.http.urls import nsqd_url
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.version import __version__

STREAM, BATCH, WRITE = "stream", "batch", "write"

#: ``maxBytesPerTrigger`` by default, by transport. What is inline is in the driver's memory.
BYTES_PER_TRIGGER = {"inline": 64 * 1024 * 1024, "file": 256 * 1024 * 1024}

#: Where a source needs another default than a single consumer.
CONFIG_DEFAULTS: dict[str, dict[str, Any]] = {
    "read": {
        "max_in_flight": 10_000,  # over all connections; nsqd caps each, at 2500 by default
        "msg_timeout": 10.0,  # how long a crash of the driver keeps messages away
        "output_buffer_size": 65_536,
        "user_agent": f"nsqclient-spark/{__version__}",
    },
    "write": {"user_agent": f"nsqclient-spark/{__version__}"},
}

#: The end of the year 9999, in milliseconds since 1970: later ones are other units.
_LATEST_MS = 253_402_300_799_999

#: Names of other data sources, and what to write.
_HINTS = {
    "maxinflight": "max_in_flight; it is the total over all connections",
    "msgtimeoutms": "msg_timeout, a Go duration such as 10s",
    "msgtimeout": "msg_timeout, a Go duration such as 10s",
    "path": "topic; the data source nsq has no path",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "maxTriggerDelayMs: a batch begins when it is full, or after that time",
    "maxtriggerdelay": "maxTriggerDelayMs, in milliseconds",
    "startingoffsetsbytimestamp": "startingTimestamp, one for all nsqds",
    "subscribe": "topic and channel",
    "subscribepattern": "topic: one query reads one topic",
    "assign": "topic and channel",
    "maxrecordsperpartition": "minPartitions for more tasks, maxMessagesPerTrigger for fewer rows",
    "groupidprefix": "channel",
    "kafkaconsumer.polltimeoutms": "rollIntervalMs",
    "kafka.bootstrap.servers": "nsqd or lookupd",
    "kafka.group.id": "channel",
    "kafka.client.id": "client_id",
    "kafka.security.protocol": "tls_v1 (true)",
    "kafka.sasl.jaas.config": "auth_secret",
    "kafka.sasl.mechanism": "auth_secret",
    "kafka.ssl.truststore.location": "tls_root_ca_file, a PEM file",
    "kafka.ssl.keystore.location": "tls_cert and tls_key, PEM files",
    "kafka.ssl.key.password": "tls_key_password",
    "kafka.ssl.keystore.password": "tls_key_password",
    "kafka.max.poll.records": "maxMessagesPerTrigger",
    "kafka.fetch.max.bytes": "maxBytesPerTrigger",
    "kafka.session.timeout.ms": "heartbeat_interval, a Go duration such as 10s",
    "kafka.compression.type": "snappy or deflate (true)",
    "kafka.batch.size": "batchSize, in messages, or batchBytes",
    "kafka.delivery.timeout.ms": "publish_timeout, a Go duration such as 30s",
    "compression": "snappy or deflate (true)",
    "tls_config": "tls_root_ca_file, tls_cert and tls_key: a ready SSLContext is no text",
}

#: Options of Spark's Kafka source and sink that have no counterpart here, and why.
_NOTHING_LIKE = {
    "startingoffsets": "a channel of NSQ begins where it stands",
    "includeheaders": "a message of NSQ has no headers",
    "endingoffsetsbytimestamp": "endingTimestamp, with mode=replay, has one for the whole spool",
    "startingoffsetsbytimestampstrategy": "after the last segment a query begins at the end",
    "fetchoffset.numretries": "a channel of NSQ has no offsets, and lost connections are retried",
    "fetchoffset.retryintervalms": "a channel of NSQ has no offsets, and lost connections are"
                                   " retried",
    "kafka.auto.offset.reset": "a channel of NSQ begins where it stands",
    "kafka.enable.auto.commit": "what is in the spool is finished at nsqd, and Spark's checkpoint"
                                " has the rest",
    "kafka.acks": "nsqd confirms every message that it has stored",
    "kafka.enable.idempotence": "publishing to NSQ is at least once",
    "kafka.transactional.id": "publishing to NSQ is at least once",
    "kafka.linger.ms": "a task publishes its rows as fast as it can",
}


#: A word, the number of a segment of a spool, or the last segment of each shard.
Offset = Union[str, int, Mapping[str, int]]


class SparkOption(NamedTuple):
    """One row of a table."""

    name: str  #: as it is written, in camel case
    #: "text", "list" (comma), "int", "ms" (kept as seconds), "bool", "choice", "offset" (a choice,
    #: or JSON of which the number is kept)
    kind: str
    default: Any
    low: int | None  #: smallest value, as it is written; None: no limit
    choices: tuple[str, ...]
    sides: tuple[str, ...]  #: where it has a meaning: "stream", "batch", "write"
    help: str


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _row(kind: str, default: Any, help: str, sides: tuple[str, ...], low: int | None = None,
         choices: tuple[str, ...] = ()) -> Any:
    option = SparkOption("", kind, default, low, choices, sides, help)
    return dataclasses.field(default=default, metadata={"option": option})


_READ = (STREAM, BATCH)


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of ``spark.readStream`` and ``spark.read``. Durations are in seconds.

    Create one with :func:`read_options`. Immutable; can be pickled.
    """

    topic: str = _row("text", "", "topic to read", _READ)
    channel: str = _row("text", "", "channel to read; use a separate channel for each query", _READ)
    nsqd: tuple[str, ...] = _row("list", (), "TCP addresses of nsqds, host:port", _READ)
    lookupd: tuple[str, ...] = _row("list", (), "HTTP addresses of nsqlookupds, host:port", _READ)
    nsqd_http: tuple[str, ...] = _row(
        "list", (), "HTTP addresses of nsqds, host:port, to query the depth; not needed with"
        " lookupd", _READ)
    spool_dir: str = _row(
        "text", "", "absolute path of the spool folder, which must outlive the driver; required for"
        " streams and drains. Use a separate folder for each query", _READ)
    storage: str = _row(
        "text", "", "URL of the shared storage that owners (nsqclient spark ingest) write to; for"
        " streams and replays, instead of spoolDir", _READ)
    list_interval_ms: float = _row(
        "ms", 0.5, "with storage: minimum time between two listings; each listing sends one request"
        " per shard", (STREAM,), 1)
    max_messages_per_trigger: int = _row(
        "int", 200_000, "maximum number of rows in a batch, in whole segments", (STREAM,), 1)
    max_bytes_per_trigger: int | None = _row(
        "int", None, "maximum number of bytes in a batch, in whole segments; 0: no limit. Default:"
        " 67108864 with inline transport, which the driver holds in memory, 268435456 with"
        " file", (STREAM,), 0)
    max_trigger_delay_ms: float = _row(
        "ms", 0.0, "maximum time between the starts of two batches; a full batch starts earlier."
        " Use it with trigger 0, because a trigger of Spark also delays full batches", (STREAM,), 0)
    max_spool_messages: int = _row(
        "int", 1_000_000, "number of rows in the spool at which reading from nsqd stops",
        (STREAM,), 1)
    max_spool_bytes: int = _row(
        "int", 1024 * 1024 * 1024, "number of bytes in the spool at which reading from nsqd stops",
        (STREAM,), 1)
    spool_retention_ms: float = _row(
        "ms", 600.0, "time for which committed segments are kept, so that they can be read again"
        " after a power failure; 0: not kept", (STREAM,), 0)
    spool_retention_bytes: int = _row(
        "int", 256 * 1024 * 1024, "maximum number of bytes of committed segments that are kept;"
        " the oldest are deleted first", (STREAM,), 0)
    starting_offsets: Offset | None = _row(
        "offset", None, "where a replay, or a query without a checkpoint, begins: committed (after"
        " the last commit; default of streams), earliest (at the oldest kept segment; default of"
        " replays), latest (at the end), or after an offset: {\"seq\": N} with a spool,"
        " {\"v\": 2, \"shards\": {\"HOST:PORT\": N}} with storage", _READ,
        choices=("committed", "earliest", "latest"))
    starting_timestamp: float | None = _row(
        "ms", None, "begin with the first segment that was stored at this time or later, in"
        " milliseconds since 1970", _READ, 0)
    ending_offsets: Offset | None = _row(
        "offset", None, "where a replay ends: latest (at the end), or an offset, which is included",
        (BATCH,),
        choices=("latest",))
    ending_timestamp: float | None = _row(
        "ms", None, "end before the first segment that was stored at this time or later, in"
        " milliseconds since 1970", (BATCH,), 0)
    roll_interval_ms: float = _row(
        "ms", 0.05, "maximum time that a message waits before its segment is written", _READ, 1)
    connections: int = _row(
        "int", 2, "number of connections to each nsqd, in each process", _READ, 1)
    ingest_processes: int = _row(
        "int", 1, "number of processes that read from nsqd and write segments", _READ, 1)
    min_partitions: int = _row(
        "int", 2, "minimum number of tasks per batch, if it has at least that many segments",
        _READ, 1)
    transport: str = _row(
        "choice", "auto", "how executors receive rows: file (they read the spool, which must be on"
        " a shared path), inline (the task contains the rows), or auto (file in local mode,"
        " otherwise inline)", _READ,
        choices=("auto", "inline", "file"))
    fail_on_data_loss: bool = _row(
        "bool", True, "fail if required segments are missing or damaged; false: continue without"
        " them", _READ)
    idle_ms: float = _row(
        "ms", 0.0, "time without messages after which a read may end where the depth is unknown; 0:"
        " such a drain fails, and a peek takes 2000", _READ, 0)
    mode: str = _row(
        "choice", "peek", "peek (show messages and requeue them), drain (move messages to the"
        " spool), or replay (read the kept segments of a query again)", (BATCH,),
        choices=("peek", "drain", "replay"))
    max_messages: int = _row(
        "int", 0, "maximum number of rows; 0: 1000 for a peek, no limit for a drain", (BATCH,), 0)
    allow_shared: bool = _row(
        "bool", False, "allow a peek of a channel that has other consumers", (BATCH,))
    snapshot: str = _row(
        "text", "", "name of the snapshot of a drain, with which you can load it again; empty: a"
        " random name", (BATCH,))
    config: Config = dataclasses.field(default_factory=Config)


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of ``df.write`` and ``df.writeStream``. Durations are in seconds.

    Create one with :func:`write_options`. Immutable; can be pickled.
    """

    topic: str = _row(
        "text", "", "topic to publish to; empty: read it from the column topic", (WRITE,))
    nsqd: tuple[str, ...] = _row("list", (), "TCP addresses of nsqds, host:port", (WRITE,))
    lookupd: tuple[str, ...] = _row(
        "list", (), "HTTP addresses of nsqlookupds, host:port", (WRITE,))
    batch_size: int = _row("int", 500, "maximum number of messages in one MPUB", (WRITE,), 1)
    batch_bytes: int = _row(
        "int", 1024 * 1024, "maximum number of bytes in one MPUB", (WRITE,), 1)
    defer_ms: float | None = _row(
        "ms", None, "delay of the delivery; messages are published one at a time (DPUB)",
        (WRITE,), 0)
    body_column: str = _row(
        "text", "body", "column that contains the body, as binary or string", (WRITE,))
    config: Config = dataclasses.field(default_factory=Config)


def _table(cls: Any) -> dict[str, tuple[str, SparkOption]]:
    """Build {lower-case name: (field, row)}."""
    rows = {}
    for field in dataclasses.fields(cls):
        if "option" in field.metadata:
            row = field.metadata["option"]._replace(name=_camel(field.name))
            rows[row.name.lower()] = (field.name, row)
    return rows


_TABLES = {"read": _table(ReadOptions), "write": _table(WriteOptions)}

#: The tables for the manual, in order.
READ_OPTIONS: list[SparkOption] = [row for _, row in _TABLES["read"].values()]
WRITE_OPTIONS: list[SparkOption] = [row for _, row in _TABLES["write"].values()]


def read_options(options: Mapping[str, str], side: str) -> ReadOptions:
    """Check the options of ``readStream`` (``side`` "stream") or ``read`` ("batch").

    Raises:
        ConfigError: an option is unknown (the nearest known one is named), belongs to the other
            side, is missing or out of range.
    """
    found = ReadOptions(**_values("read", options, side))
    is_replay = side == BATCH and found.mode == "replay"
    _check_range(found, side == STREAM or is_replay)
    if found.storage and (side == STREAM or is_replay):
        return _check_storage_reader(found)
    if found.storage:
        raise ConfigError(f"storage has no meaning with mode={found.mode}: use mode=replay, which"
                          " reads what owners have stored, or readStream")
    for offset in (found.starting_offsets, found.ending_offsets):
        if isinstance(offset, Mapping):
            raise ConfigError("an offset that names shards is for storage: one of a spool is"
                              ' {"seq": N}')
    if is_replay:  # the spool says of which topic and channel it is
        _need(found.spool_dir, "spoolDir", "that of the query, or storage")
        check_spool_dir(found.spool_dir)
        return found
    _check_channel(found)
    if side == STREAM or found.mode == "drain":
        _need(found.spool_dir, "spoolDir", "a folder that outlives the driver, such as"
                                           " <checkpoint>/nsq-spool")
        check_spool_dir(found.spool_dir)
    if set(found.snapshot) & set("/\\\0") or found.snapshot.startswith("."):
        raise ConfigError(f"snapshot {found.snapshot!r}: give a plain name, without / or first dot")
    return found


def ingest_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of ``nsqclient spark ingest``: those of a stream, with ``storage``.

    Raises:
        ConfigError: as for :func:`read_options`.
    """
    found = ReadOptions(**_values("read", options, STREAM))
    _need(found.storage, "storage", "file:///folder or s3://bucket/prefix")
    check_storage(found.storage)
    _check_channel(found)
    if found.channel.endswith("#ephemeral"):
        raise ConfigError(f"channel {found.channel}: a log is for a channel that is kept")
    return found


def _check_storage_reader(found: ReadOptions) -> ReadOptions:
    """Check what a query is given that reads shared storage."""
    _check_names(found)
    check_storage(found.storage)
    if found.spool_dir:
        raise ConfigError("give spoolDir, a folder of the driver, or storage, not both")
    if found.nsqd or found.lookupd or found.nsqd_http:
        raise ConfigError(
            "nsqd and lookupd have no meaning with storage: its owners (nsqclient spark ingest)"
            " connect to nsqds, the query reads what they have stored")
    for offset in (found.starting_offsets, found.ending_offsets):
        if isinstance(offset, int):
            raise ConfigError('{"seq": N} is an offset of a spool: with storage one is'
                              ' {"v": 2, "shards": {"HOST:PORT": N}}')
    return found


def _check_names(found: ReadOptions) -> None:
    _need(found.topic, "topic", "what to read")
    _need(found.channel, "channel", "such as spark; look#ephemeral leaves nothing behind")
    check_topic(found.topic)
    check_channel(found.channel)


def _check_channel(found: ReadOptions) -> None:
    """Check what connections to nsqds need."""
    _check_names(found)
    _check_servers(found)
    for address in found.nsqd_http:
        nsqd_url(address, "stats")
    if found.config.heartbeat_interval <= 0:
        raise ConfigError("heartbeat_interval: a source needs heartbeats, nsqd refuses SUB without")
    if found.config.max_in_flight < 1:
        raise ConfigError("max_in_flight must be at least 1: with 0 nothing would ever come")
    if found.config.msg_timeout and found.roll_interval_ms > found.config.msg_timeout / 2:
        raise ConfigError(
            f"rollIntervalMs of {found.roll_interval_ms * 1000:g} is over half of msg_timeout"
            f" ({found.config.msg_timeout:g} s): messages would time out before they are stored")


def _check_range(found: ReadOptions, is_taken: bool) -> None:
    start = (found.starting_offsets, found.starting_timestamp)
    end = (found.ending_offsets, found.ending_timestamp)
    if not is_taken and any(value is not None for value in (*start, *end)):
        raise ConfigError(
            "startingOffsets, startingTimestamp, endingOffsets and endingTimestamp are for what a"
            " spool or storage has: set mode=replay, or use readStream, which begins so")
    for name, pair in (("starting", start), ("ending", end)):
        if None not in pair:
            raise ConfigError(f"give {name}Offsets or {name}Timestamp, not both")
    for first, last in zip(start, end):
        if _is_before(last, first):
            raise ConfigError("the range ends before it begins: endingOffsets or endingTimestamp is"
                              " less than startingOffsets or startingTimestamp")


def _is_before(last: Offset | float | None, first: Offset | float | None) -> bool:
    if isinstance(first, Mapping) and isinstance(last, Mapping):
        return any(last[nsqd] < number for nsqd, number in first.items() if nsqd in last)
    return isinstance(first, (int, float)) and isinstance(last, (int, float)) and last < first


def check_spool_dir(path: str) -> None:
    """Check where a spool is to be.

    Raises:
        ConfigError: it is no absolute path of a mounted file system.
    """
    if "://" in path:
        raise ConfigError(
            f"spoolDir {path!r}: give a path of a file system that is mounted here;"
            " object stores and HDFS cannot link a file that must not exist yet")
    if not os.path.isabs(path):
        raise ConfigError(
            f"spoolDir {path!r} is relative: give an absolute path, such as /data/nsq-spool;"
            " the processes of Spark have working directories of their own")


def check_storage(url: str) -> tuple[str, str]:
    """Check the URL of a storage; return its scheme (``file`` or ``s3``) and the rest.

    Raises:
        ConfigError: the scheme is unknown, or the URL is not complete.
    """
    parts = urlsplit(url)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            "storage: give a URL without user, password, query and fragment; credentials come from"
            " the environment, the profile or the role, as the AWS libraries find them")
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.path.strip("/") == "":
            raise ConfigError(f"storage {url!r}: give an absolute path, as in file:///mnt/nsq")
        return scheme, os.path.normpath(parts.path)
    if scheme == "s3":
        if not parts.netloc:
            raise ConfigError(f"storage {url!r}: give a bucket, as in s3://bucket/prefix")
        return scheme, f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    found = f"scheme {scheme!r}" if scheme else "a URL without a scheme"
    raise ConfigError(
        f"storage {url!r}: {found} is not supported: use file:///folder, on a disk that all"
        " machines have, or s3://bucket/prefix")


def check_load(options: Mapping[str, str]) -> None:
    """Check what ``load()`` is given, which does not say whether it is for a stream or a batch.

    Raises:
        ConfigError: the options can be neither's.
    """
    names = {name.strip().lower() for name in options}
    if "provider" in names:  # which Spark adds
        raise ConfigError(
            "nsq keeps no tables, so CREATE TABLE does not work: write CREATE TEMPORARY VIEW name"
            " USING nsq OPTIONS (...)")
    is_batch = any(row.sides == (BATCH,) and name in names
                   for name, (_, row) in _TABLES["read"].items())
    errors = []
    for side in (BATCH,) if is_batch else (STREAM, BATCH):  # a peek needs no spool
        try:
            spool_dir = read_options(options, side).spool_dir
        except ConfigError as exc:
            errors.append(exc)
        else:
            if spool_dir:
                check_spool_dir(spool_dir)
            return
    raise errors[0]


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of ``write`` and ``writeStream``.

    Raises:
        ConfigError: as for :func:`read_options`.
    """
    if not options:
        raise ConfigError(
            "no options: give nsqd or lookupd, and topic. INSERT and CREATE TABLE of SQL have none"
            " and do not work: write df.write.format('nsq').mode('append').options(...).save()")
    found = WriteOptions(**_values("write", options, WRITE))
    if found.topic:
        check_topic(found.topic)
    _check_servers(found)
    if found.batch_bytes > found.config.nsqd_max_body_size:
        raise ConfigError(
            f"batchBytes of {found.batch_bytes} is over nsqd_max_body_size"
            f" ({found.config.nsqd_max_body_size}): nsqd would refuse such an MPUB")
    return found


def _need(value: str, name: str, what: str) -> None:
    if not value:
        raise ConfigError(f"option {name} is missing: {what}")


def _check_servers(found: ReadOptions | WriteOptions) -> None:
    if not found.nsqd and not found.lookupd:
        raise ConfigError("give nsqd (host:port, TCP) or lookupd (host:port, HTTP)")
    check_addresses(found.nsqd, found.lookupd)


def _values(group: str, options: Mapping[str, str], side: str) -> dict[str, Any]:
    """Read every option; return the fields, ``config`` among them."""
    table = _TABLES[group]
    values: dict[str, Any] = {}
    core: dict[str, str] = {}
    unknown = []
    for key, text in options.items():
        name = key.strip().lower()
        if name in table:
            field, row = table[name]
            if side not in row.sides:
                raise ConfigError(f"option {row.name} has no meaning here: {_only_for(row)}")
            values[field] = _parsed(row, text)
        elif name.replace("-", "_") in OPTIONS and name not in _HINTS:
            core[name.replace("-", "_")] = text
        else:
            unknown.append(str(_unknown(key, group)))
    if unknown:
        raise ConfigError("; ".join(unknown))
    config = Config.from_strings(core)
    missing = {name: value for name, value in CONFIG_DEFAULTS[group].items() if name not in core}
    values["config"] = config.replace(**missing)
    return values


def _only_for(row: SparkOption) -> str:
    calls = {STREAM: "readStream", BATCH: "read", WRITE: "write"}
    return f"it is for {' and '.join(calls[side] for side in row.sides)}"


def _unknown(key: str, group: str) -> ConfigError:
    name = key.strip().lower()
    plain = name.replace("-", "_").replace("_", "")
    hint = _HINTS.get(name) or _HINTS.get(plain)
    if hint is not None:
        return ConfigError(f"unknown option {key!r}: use {hint}")
    if plain in _NOTHING_LIKE:
        return ConfigError(f"unknown option {key!r}: nsq has none like it: {_NOTHING_LIKE[plain]}")
    if name.startswith("kafka."):
        return ConfigError(
            f"unknown option {key!r}: nsq takes none of Kafka's; docs/topics/spark.rst lists what"
            " there is")
    known = {name.replace("_", ""): name for name in OPTIONS}
    known |= {name: row.name for name, (_, row) in _TABLES[group].items()}
    close = difflib.get_close_matches(plain, known, n=1)
    if close:
        return ConfigError(f"unknown option {key!r}; did you mean {known[close[0]]}?")
    other = "write" if group == "read" else "read"
    if plain in _TABLES[other]:
        row = _TABLES[other][plain][1]
        return ConfigError(f"option {row.name} has no meaning here: {_only_for(row)}")
    return ConfigError(f"unknown option {key!r}: docs/topics/spark.rst lists what there is")


def _parsed(row: SparkOption, text: str) -> Any:
    text = text.strip()
    if row.kind == "list":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if row.kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"option {row.name}: {text!r} is not true or false")
        return text.lower() == "true"
    if row.kind == "choice":
        if text.lower() not in row.choices:
            raise ConfigError(f"option {row.name}: {text!r} is none of {', '.join(row.choices)}")
        return text.lower()
    if row.kind == "offset":
        return _offset(row, text)
    if row.kind in ("int", "ms"):
        try:
            number = int(text)
        except ValueError:
            unit = " of milliseconds" if row.kind == "ms" else ""
            raise ConfigError(
                f"option {row.name}: {text!r} is not a whole number{unit}") from None
        if row.low is not None and number < row.low:
            raise ConfigError(f"option {row.name} of {number} is too small: from {row.low}")
        if row.name.endswith("Timestamp") and number > _LATEST_MS:
            raise ConfigError(f"option {row.name} of {number} is after the year 9999: give"
                              " milliseconds since 1970")
        return number / 1000 if row.kind == "ms" else number
    return text


def _offset(row: SparkOption, text: str) -> Offset:
    if text.lower() in row.choices:
        return text.lower()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    # An offset as Spark's checkpoint has it.
    if isinstance(found, dict) and list(found) == ["seq"] and _is_number(found["seq"]):
        number: int = found["seq"]
        return number
    if isinstance(found, dict) and set(found) == {"v", "shards"} and found["v"] == 2:
        shards = found["shards"]
        if isinstance(shards, dict) and all(map(_is_number, shards.values())):
            return shards
    raise ConfigError(f"option {row.name}: {text!r} is none of {', '.join(row.choices)}, nor"
                      ' {"seq": N}, an offset of Spark\'s checkpoint, or with storage'
                      ' {"v": 2, "shards": {"HOST:PORT": N}}')


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
