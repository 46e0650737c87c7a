"""The options of the Spark data source: two tables, reading and writing, on top of ``Config``'s.

Spark hands over texts whose names ignore case. A row of a table here is a field of ``ReadOptions``
or ``WriteOptions``; every option of :class:`nsqclient.Config` is taken too, under its own name and
in its own notation. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nsqclient.addresses import check_addresses
from nsqclient.config import OPTIONS, Config
from nsqclient.errors import ConfigError
from nsqclient.http.urls import nsqd_url
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.version import __version__

STREAM, BATCH, WRITE = "stream", "batch", "write"

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

#: Names that others use, or that older notes of ours had, and what to write.
_HINTS = {
    "maxinflight": "max_in_flight; it is the total over all connections",
    "msgtimeoutms": "msg_timeout, a Go duration such as 10s",
    "msgtimeout": "msg_timeout, a Go duration such as 10s",
    "path": "topic; the data source nsq has no path",
    "startingoffsets": "nothing: a channel of NSQ begins where it stands",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "subscribe": "topic and channel",
    "compression": "snappy or deflate (true)",
    "tls_config": "tls_root_ca_file, tls_cert and tls_key: a ready SSLContext is no text",
}


class SparkOption(NamedTuple):
    """One row of a table."""

    name: str  #: as it is written, in camel case
    kind: str  #: "text", "list" (comma), "int", "ms" (kept as seconds), "bool" or "choice"
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
    """The options of ``spark.readStream`` and ``spark.read``, checked. Durations are seconds.

    Build one with :func:`read_options`. Immutable, and pickles.
    """

    topic: str = _row("text", "", "what to read", _READ)
    channel: str = _row("text", "", "whose copy of the messages; one channel for one query", _READ)
    nsqd: tuple[str, ...] = _row("list", (), "host:port of nsqds, TCP", _READ)
    lookupd: tuple[str, ...] = _row("list", (), "host:port of nsqlookupds, HTTP", _READ)
    nsqd_http: tuple[str, ...] = _row(
        "list", (), "host:port of the nsqds' HTTP ports, for the depth; lookupd tells them too",
        _READ)
    spool_dir: str = _row(
        "text", "", "folder of the spool; needed to stream and to drain. It must outlive the"
        " driver, and belongs to one query", _READ)
    max_messages_per_trigger: int = _row(
        "int", 200_000, "rows in a batch, as far as whole segments allow", (STREAM,), 1)
    max_bytes_per_trigger: int = _row(
        "int", 0, "bytes in a batch, as far as whole segments allow; 0: no limit", (STREAM,), 0)
    max_spool_messages: int = _row(
        "int", 1_000_000, "rows in the spool from which on nothing more is taken from nsqd",
        (STREAM,), 1)
    max_spool_bytes: int = _row(
        "int", 1024 * 1024 * 1024, "the same in bytes", (STREAM,), 1)
    roll_interval_ms: float = _row(
        "ms", 0.05, "longest time that a message waits for others before it is written", _READ, 1)
    connections: int = _row("int", 2, "connections to each nsqd, in each process", _READ, 1)
    ingest_processes: int = _row(
        "int", 1, "processes that read from nsqd and write segments", _READ, 1)
    min_partitions: int = _row(
        "int", 2, "tasks of a batch, where it has so many segments", _READ, 1)
    transport: str = _row(
        "choice", "auto", "how rows reach executors: file reads the spool (a shared path), inline"
        " sends them with the task; auto is file in local mode, else inline", _READ,
        choices=("auto", "inline", "file"))
    fail_on_data_loss: bool = _row(
        "bool", True, "end the query when segments that it needs are gone; false: go on without",
        (STREAM,))
    idle_ms: float = _row(
        "ms", 2.0, "silence that counts as the end, where no HTTP port tells the depth", _READ, 1)
    mode: str = _row(
        "choice", "peek", "peek gives all messages back; drain takes them into the spool", (BATCH,),
        choices=("peek", "drain"))
    max_messages: int = _row("int", 0, "rows at most; 0: 1000 for peek, no limit for drain",
                             (BATCH,), 0)
    allow_shared: bool = _row(
        "bool", False, "peek at a channel that has other consumers", (BATCH,))
    snapshot: str = _row(
        "text", "", "name of what a drain took, to load it again; empty: a random one", (BATCH,))
    config: Config = dataclasses.field(default_factory=Config)


@dataclass(frozen=True)
class WriteOptions:
    """The options of ``df.write`` and ``df.writeStream``, checked. Durations are seconds.

    Build one with :func:`write_options`. Immutable, and pickles.
    """

    topic: str = _row("text", "", "where to publish; empty: the column topic says", (WRITE,))
    nsqd: tuple[str, ...] = _row("list", (), "host:port of nsqds, TCP", (WRITE,))
    lookupd: tuple[str, ...] = _row("list", (), "host:port of nsqlookupds, HTTP", (WRITE,))
    batch_size: int = _row("int", 500, "messages in one MPUB", (WRITE,), 1)
    batch_bytes: int = _row("int", 1024 * 1024, "bytes in one MPUB", (WRITE,), 1)
    defer_ms: float | None = _row(
        "ms", None, "deliver so much later (DPUB, one message at a time)", (WRITE,), 0)
    body_column: str = _row("text", "body", "column with the payload, binary or string", (WRITE,))
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
    _need(found.topic, "topic", "what to read")
    _need(found.channel, "channel", "such as spark; look#ephemeral leaves nothing behind")
    check_topic(found.topic)
    check_channel(found.channel)
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
    if side == STREAM or found.mode == "drain":
        _need(found.spool_dir, "spoolDir", "a folder that outlives the driver, such as"
                                           " <checkpoint>/nsq-spool")
        if "://" in found.spool_dir:
            raise ConfigError(
                f"spoolDir {found.spool_dir!r}: give a path of a file system that is mounted here;"
                " object stores and HDFS cannot link a file that must not exist yet")
    if set(found.snapshot) & set("/\\\0") or found.snapshot.startswith("."):
        raise ConfigError(f"snapshot {found.snapshot!r}: give a plain name, without / or first dot")
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of ``write`` and ``writeStream``.

    Raises:
        ConfigError: as for :func:`read_options`.
    """
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
            raise _unknown(key, group)
    config = Config.from_strings(core)
    missing = {name: value for name, value in CONFIG_DEFAULTS[group].items() if name not in core}
    values["config"] = config.replace(**missing)
    return values


def _only_for(row: SparkOption) -> str:
    calls = {STREAM: "readStream", BATCH: "read", WRITE: "write"}
    return f"it is for {' and '.join(calls[side] for side in row.sides)}"


def _unknown(key: str, group: str) -> ConfigError:
    plain = key.strip().lower().replace("-", "_").replace("_", "")
    hint = _HINTS.get(key.strip().lower()) or _HINTS.get(plain)
    if hint is not None:
        return ConfigError(f"unknown option {key!r}: use {hint}")
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
    if row.kind in ("int", "ms"):
        try:
            number = int(text)
        except ValueError:
            unit = " of milliseconds" if row.kind == "ms" else ""
            raise ConfigError(
                f"option {row.name}: {text!r} is not a whole number{unit}") from None
        if row.low is not None and number < row.low:
            raise ConfigError(f"option {row.name} of {number} is too small: from {row.low}")
        return number / 1000 if row.kind == "ms" else number
    return text
