"""The options of the Spark data source, to read and to write.

Each field of ``ReadOptions`` and ``WriteOptions`` is one option. Spark passes options as text, and
ignores the case of their names. Every option of :class:`nsqclient.Config` is accepted too, with its
own name and notation. Imports neither pyspark nor pyarrow.
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

#: The columns of a row. ``timestamp_ltz``, because the meaning of ``timestamp`` depends on
#: spark.sql.timestampType.
ROW_DDL = (
    "topic string, channel string, nsqd string, message_id string, attempts int,"
    " timestamp timestamp_ltz, timestamp_ns bigint, body binary"
)

#: Defaults that differ from those of a single consumer.
CONFIG_DEFAULTS: dict[str, dict[str, Any]] = {
    "read": {
        "max_in_flight": 10_000,  # over all connections; nsqd caps each, at 2500 by default
        "msg_timeout": 10.0,  # after a crash of the driver, nsqd redelivers this much later
        "output_buffer_size": 65_536,
        "output_buffer_timeout": 0.025,  # nsqd's minimum
        "user_agent": f"nsqclient-spark/{__version__}",
    },
    "write": {"user_agent": f"nsqclient-spark/{__version__}"},
}

#: The end of the year 9999, in milliseconds since 1970. Larger numbers have another unit.
_LATEST_MS = 253_402_300_799_999

#: Options of other data sources -> the option to use instead.
_HINTS = {
    "maxinflight": "max_in_flight; it is the total over all connections",
    "msgtimeoutms": "msg_timeout, a Go duration such as 10s",
    "path": "topic; the data source nsq has no path",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "maxTriggerDelayMs: a batch begins when it is full, or after that time",
    "startingoffsetsbytimestamp": "startingTimestamp, one for all nsqds",
    "endingoffsetsbytimestamp": "endingTimestamp, one for all nsqds, with mode=replay",
    "subscribe": "topic and channel",
    "subscribepattern": "topic: one query reads one topic",
    "assign": "topic and channel",
    "groupidprefix": "channel",
    "kafka.bootstrap.servers": "nsqd or lookupd",
    "kafka.group.id": "channel",
    "compression": "snappy or deflate (true)",
    "tls_config": "tls_root_ca_file, tls_cert and tls_key: an SSLContext cannot be given as text",
}


#: A word, or the last segment of each shard.
Offset = Union[str, Mapping[str, int]]


class SparkOption(NamedTuple):
    name: str  #: name of the option, in camel case
    #: "text", "list" (separated by commas), "int", "ms" (stored as seconds), "bool", "choice",
    #: "offset" (a choice, or an offset in JSON)
    kind: str
    default: Any
    low: int | None  #: smallest value, in the unit of the option; None: no limit
    choices: tuple[str, ...]
    sides: tuple[str, ...]  #: where it is accepted: "stream", "batch", "write"
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
    """The checked options of ``spark.readStream`` and ``spark.read``. Durations in seconds."""

    topic: str = _row("text", "", "topic to read", _READ)
    channel: str = _row("text", "", "channel to read; use a separate channel for each query", _READ)
    nsqd: tuple[str, ...] = _row("list", (), "TCP addresses of nsqds, host:port", _READ)
    lookupd: tuple[str, ...] = _row("list", (), "HTTP addresses of nsqlookupds, host:port", _READ)
    nsqd_http: tuple[str, ...] = _row(
        "list", (), "HTTP addresses of nsqds, host:port, to query the depth; not needed with"
        " lookupd", _READ)
    storage: str = _row(
        "text", "", "where the log is: an absolute path, also as a file URL, which must outlive the"
        " driver, or s3://bucket/prefix; required for streams, drains and replays. All machines"
        " that run tasks must have access to it. Without nsqd and lookupd, a stream reads what"
        " owners (nsqclient spark ingest) write there", _READ)
    list_interval_ms: float = _row(
        "ms", 0.5, "minimum time between two listings of what other processes write; each"
        " listing sends one request per shard", (STREAM,), 1)
    max_messages_per_trigger: int = _row(
        "int", 200_000, "maximum number of rows in a batch, rounded down to whole segments: at"
        " least half of max_in_flight", (STREAM,), 1)
    max_bytes_per_trigger: int = _row(
        "int", 64 * 1024 * 1024, "maximum number of bytes in a batch, rounded down to whole"
        " segments, at least one (8 MiB, or one larger message); 0: no limit", (STREAM,), 0)
    max_trigger_delay_ms: float = _row(
        "ms", 0.0, "maximum time between the starts of two batches; a full batch starts earlier."
        " Use it with trigger 0, because a trigger of Spark also delays full batches", (STREAM,), 0)
    max_log_messages: int = _row(
        "int", 1_000_000, "number of uncommitted rows of an nsqd at which reading from it stops",
        (STREAM,), 1)
    max_log_bytes: int = _row(
        "int", 1024 * 1024 * 1024, "number of uncommitted bytes of an nsqd at which reading from it"
        " stops", (STREAM,), 1)
    retention_ms: float = _row(
        "ms", 600.0, "time for which committed segments are kept, so that they can be read again"
        " after a power failure; 0: not kept. A full disk ends it earlier", (STREAM,), 0)
    retention_bytes: int = _row(
        "int", 256 * 1024 * 1024, "maximum number of bytes of committed segments that are kept of"
        " each nsqd; the oldest are deleted first", (STREAM,), 0)
    starting_offsets: Offset | None = _row(
        "offset", None, "where a replay, or a query without a checkpoint, begins: committed (after"
        " the last commit; default of streams), earliest (at the oldest kept segment; default of"
        " replays), latest (at the end), or after an offset:"
        " {\"shards\": {\"HOST:PORT\": N}}", _READ,
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
        "int", 2, "number of connections to each nsqd", _READ, 1)
    min_partitions: int = _row(
        "int", 2, "minimum number of tasks per batch, if it has at least that many segments",
        _READ, 1)
    fail_on_data_loss: bool = _row(
        "bool", True, "fail if required segments are missing or damaged; false: continue without"
        " them", _READ)
    idle_ms: float = _row(
        "ms", 0.0, "time without messages after which a read may end where the depth is unknown; 0:"
        " such a drain fails. A peek takes at least 2000", _READ, 0)
    mode: str = _row(
        "choice", "peek", "peek (show messages and requeue them), drain (move messages into a"
        " snapshot), or replay (read the kept segments of a query, or a snapshot, again)",
        (BATCH,),
        choices=("peek", "drain", "replay"))
    max_messages: int = _row(
        "int", 0, "maximum number of rows; 0: 1000 for a peek, no limit for a drain", (BATCH,), 0)
    allow_shared: bool = _row(
        "bool", False, "allow a peek of a channel that has other consumers", (BATCH,))
    snapshot: str = _row(
        "text", "", "name of the snapshot of a drain (empty: a random name); with mode=replay, the"
        " complete snapshot to read again", (BATCH,))
    config: Config = dataclasses.field(default_factory=Config)

    @property
    def segment_rows(self) -> int:
        """Maximum rows of a segment: half of max_in_flight, so that nsqd sends the other half."""
        return max(1, self.config.max_in_flight // 2)

    @property
    def is_receiving(self) -> bool:
        return bool(self.nsqd or self.lookupd)


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of ``df.write`` and ``df.writeStream``. Durations in seconds."""

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
    empty_bodies: str = _row(
        "choice", "fail", "what to do with a row whose body is null or empty, which NSQ cannot"
        " store: fail (the row ends the write, or the query), skip, or dead_letter (the row is"
        " written to deadLetterPath); a WARNING has the number of such rows", (WRITE,),
        choices=("fail", "skip", "dead_letter"))
    dead_letter_path: str = _row(
        "text", "", "folder for rows whose body is null or empty, with emptyBodies=dead_letter: an"
        " absolute path that the driver and all executors share. Columns that a message has no"
        " place for are then allowed, and written with such rows", (WRITE,))
    config: Config = dataclasses.field(default_factory=Config)


def _table(cls: Any) -> dict[str, tuple[str, SparkOption]]:
    rows = {}
    for field in dataclasses.fields(cls):
        if "option" in field.metadata:
            row = field.metadata["option"]._replace(name=_camel(field.name))
            rows[row.name.lower()] = (field.name, row)
    return rows


_TABLES = {"read": _table(ReadOptions), "write": _table(WriteOptions)}

#: The options in the order of the manual.
READ_OPTIONS: list[SparkOption] = [row for _, row in _TABLES["read"].values()]
WRITE_OPTIONS: list[SparkOption] = [row for _, row in _TABLES["write"].values()]


def read_options(options: Mapping[str, str], side: str) -> ReadOptions:
    """Check the options of ``readStream`` (``side`` "stream") or ``read`` ("batch").

    Raises:
        ConfigError: an option is unknown, missing, invalid, or for another side.
    """
    found = ReadOptions(**_values("read", options, side))
    is_replay = side == BATCH and found.mode == "replay"
    is_peek = side == BATCH and found.mode == "peek"
    _check_range(found, side == STREAM or is_replay)
    _check_names(found)
    if is_peek and found.storage:
        raise ConfigError("storage has no meaning with mode=peek: use mode=replay, which reads what"
                          " is stored, mode=drain, or readStream")
    if not is_peek:
        _need(found.storage, "storage", "an absolute path, or s3://bucket/prefix, that outlives the"
                                        " driver")
        check_storage(found.storage)
    if is_replay and (found.nsqd or found.lookupd or found.nsqd_http):
        raise ConfigError("nsqd and lookupd have no meaning with mode=replay, which reads what is"
                          " stored")
    if side == BATCH and not is_replay or found.is_receiving:
        _check_receiving(found)
    if side == STREAM and found.is_receiving and (
        found.max_messages_per_trigger < found.segment_rows
    ):
        raise ConfigError(
            f"maxMessagesPerTrigger of {found.max_messages_per_trigger} is less than one segment,"
            f" which has up to {found.segment_rows} rows (half of max_in_flight), and a batch has"
            f" whole segments: give at least {found.segment_rows}, or a max_in_flight of at most"
            f" {2 * found.max_messages_per_trigger}")
    if set(found.snapshot) & set("/\\\0") or found.snapshot.startswith((".", "%")):
        raise ConfigError(f"snapshot {found.snapshot!r}: give a plain name, without / or first dot")
    return found


def ingest_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of ``nsqclient spark ingest``: a stream's, with ``storage``."""
    found = read_options(options, STREAM)
    _check_receiving(found)
    if found.channel.endswith("#ephemeral"):
        raise ConfigError(f"channel {found.channel}: a log is for a channel that is kept")
    return found


def _check_names(found: ReadOptions) -> None:
    _need(found.topic, "topic", "what to read")
    _need(found.channel, "channel", "such as spark; look#ephemeral leaves nothing behind")
    check_topic(found.topic)
    check_channel(found.channel)


def _check_receiving(found: ReadOptions) -> None:
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
            " log has: set mode=replay, or use readStream, which begins so")
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
    return isinstance(first, float) and isinstance(last, float) and last < first


def check_storage(url: str) -> tuple[str, str]:
    """Check the URL of a storage; return its scheme (``file``, ``s3``, ``gs``, ``az``) and path."""
    if "://" not in url:
        if not os.path.isabs(url) or url.strip("/") == "":
            raise ConfigError(f"storage {url!r}: give an absolute path, such as /data/nsq-log, or a"
                              " URL; the processes of Spark have working directories of their own")
        return "file", os.path.normpath(url)
    parts = urlsplit(url)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            "storage: give a URL without user, password, query and fragment; credentials come from"
            " the environment or the role")
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or parts.path.strip("/") == "":
            raise ConfigError(f"storage {url!r}: give an absolute path, as in file:///mnt/nsq")
        return scheme, os.path.normpath(parts.path)
    if scheme in ("s3", "gs", "az"):
        if not parts.netloc:
            place = "container" if scheme == "az" else "bucket"
            raise ConfigError(f"storage {url!r}: give a {place}, as in {scheme}://{place}/prefix")
        return scheme, f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    raise ConfigError(
        f"storage {url!r}: scheme {scheme!r} is not supported: use a path, on a disk that all"
        " machines have, s3://bucket/prefix, gs:// or az://")


def check_load(options: Mapping[str, str]) -> None:
    """Check the options of ``load()``, which may be for a stream or a batch."""
    names = {name.strip().lower() for name in options}
    if "provider" in names:  # added by Spark
        raise ConfigError(
            "nsq keeps no tables, so CREATE TABLE does not work: write CREATE TEMPORARY VIEW name"
            " USING nsq OPTIONS (...)")
    is_batch = any(row.sides == (BATCH,) and name in names
                   for name, (_, row) in _TABLES["read"].items())
    errors = []
    for side in (BATCH,) if is_batch else (STREAM, BATCH):  # a peek needs no storage
        try:
            read_options(options, side)
        except ConfigError as exc:
            errors.append(exc)
        else:
            return
    raise errors[0]


def write_options(options: Mapping[str, str]) -> WriteOptions:
    if not options:
        raise ConfigError(
            "no options: give nsqd or lookupd, and topic. INSERT and CREATE TABLE of SQL have none"
            " and do not work: write df.write.format('nsq').mode('append').options(...).save()")
    found = WriteOptions(**_values("write", options, WRITE))
    if found.topic:
        check_topic(found.topic)
    _check_servers(found)
    if (found.empty_bodies == "dead_letter") != bool(found.dead_letter_path):
        raise ConfigError("give emptyBodies=dead_letter and deadLetterPath together: a folder that"
                          " the driver and all executors share")
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
    table = _TABLES[group]
    texts = {key.strip().lower(): text.strip() for key, text in options.items()}
    log = f"{texts.get('topic')}/{texts.get('channel')}"
    values: dict[str, Any] = {}
    core: dict[str, str] = {}
    wrong = []
    for key, text in options.items():
        name = key.strip().lower()
        if name in table:
            field, row = table[name]
            if side in row.sides:
                values[field] = _parsed(row, text, log)
            else:
                wrong.append(f"option {row.name} has no meaning here: {_only_for(row)}")
        elif name.replace("-", "_") in OPTIONS and name not in _HINTS:
            core[name.replace("-", "_")] = text
        else:
            wrong.append(_unknown(key, group))
    if wrong:
        raise ConfigError("; ".join(wrong))
    config = Config.from_strings(core)
    missing = {name: value for name, value in CONFIG_DEFAULTS[group].items() if name not in core}
    values["config"] = config.replace(**missing)
    return values


def _only_for(row: SparkOption) -> str:
    calls = {STREAM: "readStream", BATCH: "read", WRITE: "write"}
    return f"it is for {' and '.join(calls[side] for side in row.sides)}"


def _unknown(key: str, group: str) -> str:
    name = key.strip().lower()
    plain = name.replace("-", "_").replace("_", "")
    hint = _HINTS.get(name) or _HINTS.get(plain)
    if hint is not None:
        return f"unknown option {key!r}: use {hint}"
    if name.startswith("kafka."):
        return (f"unknown option {key!r}: nsq takes none of Kafka's;"
                " docs/topics/spark-reference.rst lists what there is")
    other = _TABLES["write" if group == "read" else "read"]
    if plain in other:
        return f"option {other[plain][1].name} has no meaning here: {_only_for(other[plain][1])}"
    known = {name.replace("_", ""): name for name in OPTIONS}
    known |= {name: row.name for name, (_, row) in _TABLES[group].items()}
    close = difflib.get_close_matches(plain, known, n=1)
    if close:
        return f"unknown option {key!r}; did you mean {known[close[0]]}?"
    return f"unknown option {key!r}: docs/topics/spark-reference.rst lists what there is"


def _parsed(row: SparkOption, text: str, log: str) -> Any:
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
        return _offset(row, text, log)
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


def _offset(row: SparkOption, text: str, log: str) -> Offset:
    if text.lower() in row.choices:
        return text.lower()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    # An offset of Spark's checkpoint, of which only "shards" is required.
    if isinstance(found, dict) and found.keys() <= {"v", "log", "shards"} and (
        found.get("v", 2) == 2
    ):
        shards = found.get("shards")
        if isinstance(shards, dict) and all(map(_is_number, shards.values())):
            if found.get("log", log) != log:
                raise ConfigError(f"option {row.name}: the offset belongs to {found['log']}, the"
                                  f" query reads {log}")
            return shards
    raise ConfigError(f"option {row.name}: {text!r} is none of {', '.join(row.choices)}, nor"
                      ' {"v": 2, "shards": {"HOST:PORT": N}}, an offset of Spark\'s checkpoint')


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
