"""``nsqclient to_nsq`` or ``publish``: publish stdin, arguments or a file, record by record.

Records that are read together are published together (MPUB). With several nsqds each gets every
record, as in the original, unless ``--round-robin`` is given. The first record that is not stored
within ``publish_timeout`` ends it with status 1.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from nsqclient import Config, NSQError, PublishError
from nsqclient.cli.flags import (
    BOOL, PATH, STRING, STRINGS, CommandLineError, FlagError, Kind, Parsed, choice, limited,
)
from nsqclient.cli.lines import FORMATS, body_of, in_flags, key_of, unescape
from nsqclient.cli.tool_flags import (
    COUNT, NOT_NEGATIVE, SOURCES, ToolFlags, add_addresses, add_secret_flags, read_config,
)
from nsqclient.partitioned import Outgoing, Producer
from nsqclient.display import counted, show_size
from nsqclient.runtime.delays import RateLimiter
from nsqclient.runtime.process_signals import Second, Signals

logger: logging.Logger = logging.getLogger("nsqclient.cli")

PROGRAM = "to_nsq"

_STDIN = 0
#: Bytes of one read: some thousand lines for one MPUB.
_CHUNK = 256 * 1024
#: Number of commands into which one read is divided if several nsqds share the records.
_PARTS = 8

_TOO_LONG = ("it is over %d bytes: if nsqd has a larger --max-msg-size, give"
             " --producer-opt=nsqd_max_msg_size,...")
_PAUSE = 0.2
#: JSON lines may be longer than their bodies: a byte may be escaped as six characters.
_JSON_SIZE = 7

DELIMITER = limited(Kind("string", unescape, repr), bool, "must be at least one byte")

_SUMMARY = """\
Publishes stdin, or --input-file, to a topic, one message per line (or record, see --delimiter); or
each word of the command line that is not a flag. Empty records are skipped. If you give several
nsqds, each of them receives every record. The exit status is 0 if all records were stored, or after
SIGINT or SIGTERM, and 1 if any record was not stored."""

_EXAMPLES = [
    ("publish two messages",
     "nsqclient publish --nsqd-tcp-address=127.0.0.1:4150 --topic=t 'message 1' 'message 2'"),
    ("publish an archive of nsq_to_file, or what nsq_tail --json printed, again",
     "nsqclient publish ... --topic=t --input-file=orders.jsonl --format=jsonl"),
    ("publish each line of a file",
     "nsqclient to_nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=t < file"),
    ("publish to a partitioned NSQ, with the records of each user in order",
     "nsqclient to_nsq --lookupd-http-address=10.0.0.1:4161 --topic=t --key-field=user < file"),
]


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES, words="[MESSAGE ...]",
                      flags_anywhere=True)
    flags.group("Messages")
    flags.add("input-file", PATH, "", "file to read instead of stdin")
    flags.add("format", choice(*FORMATS), "lines", "form of the records: lines (bodies), or jsonl"
              " (JSON objects with body or body_base64)")
    flags.add("delimiter", DELIMITER, b"\n",
              "one or more bytes that end a record; may contain \\n \\t \\r \\0 \\xHH")
    flags.group("Destination")
    flags.add_topic()
    add_addresses(flags, "nsqd-tcp-address")
    flags.add("lookupd-http-address", STRINGS, (),
              "for a partitioned NSQ: HTTP address of an nsqlookupd, <addr>:<port>, instead of"
              " nsqds; may be repeated")
    flags.require(*SOURCES)
    flags.add("key-field", STRING, "",
              "for a partitioned NSQ: field of JSON records whose value is the key")
    flags.add("ordered", BOOL, False,
              "for a partitioned NSQ: keep all records in order, in one partition")
    for name in ("key-field", "ordered"):
        flags.need(name, "lookupd-http-address")
        flags.exclude(name, "defer")  # stock NSQ lacks keys, partitioned NSQ lacks delays
    flags.add("round-robin", BOOL, False,
              "publish each record to one live nsqd in turn, instead of to every nsqd")
    flags.add_producer_options()
    add_secret_flags(flags)
    flags.group("Options")
    flags.add("rate", COUNT, 0, "maximum number of messages per second; 0: no limit")
    flags.add("defer", NOT_NEGATIVE, 0.0, "delay after which nsqd delivers a message")
    flags.add("progress", BOOL, None,
              "show the progress on stderr (default: if stderr is a terminal)")
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    config = read_config(values, PROGRAM, "producer-opt")
    if values["defer"] > config.nsqd_max_req_timeout:
        raise FlagError(
            f"--defer is over nsqd's limit of {config.nsqd_max_req_timeout:g} s: if its"
            " --max-req-timeout is higher, give --producer-opt=nsqd_max_req_timeout,...")
    if values["rate"]:
        logger.info("Throttling messages rate to max:%d/second", values["rate"])
    terminal = sys.stderr.isatty() if values["progress"] is None else values["progress"]
    if parsed.rest and values["input-file"]:
        raise FlagError("give messages or --input-file, not both")
    if len(parsed.rest) == 1 and os.path.isfile(parsed.rest[0]):
        raise FlagError(f"{parsed.rest[0]} is a file: to publish its lines, write"
                        f" ... < {parsed.rest[0]}, or --input-file={parsed.rest[0]}")
    with contextlib.ExitStack() as stack:
        source = _STDIN
        if values["input-file"]:
            source = stack.enter_context(open(values["input-file"], "rb", buffering=0)).fileno()
        progress = Progress(
            sys.stderr if terminal and not parsed.rest else None, _size_of(source))
        signals = stack.enter_context(Signals(Second.EXIT))
        publishers = [
            RecordPublisher(
                name, stack.enter_context(producer), values["topic"], values["defer"],
                _key_function(values), _PARTS if values["round-robin"] else 1)
            for name, producer in make_producers(
                values["nsqd-tcp-address"], values["lookupd-http-address"], config,
                together=values["round-robin"]).items()]
        copy = _Copy(values, config, publishers, signals, progress)
        if parsed.rest:
            copy.hand_over([os.fsencode(word) for word in parsed.rest if word])
        else:
            copy.run(source)
    if copy.left:
        logger.warning("stopped: %s read, but not published", counted(copy.left, "record"))
    return 0


def _key_function(values: dict[str, Any]) -> Callable[[bytes], str] | None:
    field, topic = values["key-field"], values["topic"]
    if field:
        return lambda record: key_of(record, field)
    return (lambda record: topic) if values["ordered"] else None


def _size_of(source: int) -> int | None:
    status = os.fstat(source)
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size - os.lseek(source, 0, os.SEEK_CUR)


def make_producers(
    nsqds: Sequence[str], lookupds: Sequence[str], config: Config, *, together: bool
) -> dict[str, Producer]:
    """Return producers by name: one for nsqlookupds; one for all nsqds (``together``), or each."""
    if lookupds:
        return {", ".join(lookupds): Producer(lookupd_http_addresses=lookupds, config=config)}
    nsqds = list(dict.fromkeys(nsqds))
    groups = [nsqds] if together else [[nsqd] for nsqd in nsqds]
    return {", ".join(group): Producer(group, config=config) for group in groups}


class RecordPublisher:
    """Publishes lists of records to one destination, in order.

    Args:
        key: returns the key of a record, for a partitioned NSQ.
        parts: commands into which a list of records is divided; each goes to the next nsqd.
    """

    def __init__(
        self, name: str, producer: Producer, topic: str, defer: float,
        key: Callable[[bytes], str] | None, parts: int = 1,
    ) -> None:
        self._name = name
        self._producer = producer
        self._topic = topic
        self._defer = defer
        self._key = key
        self._parts = parts
        self.stored: int = 0

    def publish(self, records: list[bytes]) -> None:
        try:
            self._publish(records)
        except NSQError as exc:
            self.stored += exc.stored if isinstance(exc, PublishError) else 0
            raise CommandLineError(
                f"{self._name}: {in_flags(exc, '--key-field or --ordered')}"
                f" ({counted(self.stored, 'record')} stored)") from exc

    def _publish(self, records: list[bytes]) -> None:
        if self._defer:
            # MPUB does not support a delay.
            for future in [self._producer.publish_async(self._topic, record, self._defer)
                           for record in records]:
                future.result()
                self.stored += 1
            return
        messages: list[bytes | Outgoing] = list(records)
        if self._key is not None:
            messages = [Outgoing(record, self._key(record)) for record in records]
        size = max(1, -(-len(messages) // self._parts))
        for at in range(0, len(messages), size):
            self.stored += self._producer.publish_many(self._topic, messages[at:at + size])


class _Stopped(Exception):
    """After a signal, the start of the next record is incomplete and must not be published."""


class _Copy:
    def __init__(
        self, values: dict[str, Any], config: Config, publishers: list[RecordPublisher],
        signals: Signals, progress: Progress,
    ) -> None:
        self._publishers = publishers
        self._signals = signals
        self._progress = progress
        self._is_json = values["format"] == "jsonl"
        self._delimiter = values["delimiter"]
        self._limit = config.nsqd_max_msg_size * (_JSON_SIZE if self._is_json else 1)
        self._limiter = RateLimiter(values["rate"], time.monotonic())
        self._handed_over = 0
        self._size = 0
        #: Whole records that were read and not handed over when a signal came.
        self.left = 0

    def run(self, source: int) -> None:
        try:
            for records in split_records(self._chunks(source), self._delimiter, self._limit):
                self._take(records)
        except _Stopped:
            pass
        except ValueError as exc:
            raise CommandLineError(f"record {self._handed_over + 1}: {exc}") from None
        finally:
            self._progress.update(self._handed_over, self._size, last=True)

    def _chunks(self, source: int) -> Iterator[bytes]:
        while not self._signals.is_stopping:
            stop = self._signals.fileno()
            if stop in select.select([source, stop], [], [])[0]:
                break
            data = os.read(source, _CHUNK)
            if not data:
                return
            self._size += len(data)
            yield data
        raise _Stopped

    def _take(self, records: list[bytes]) -> None:
        """Hand over the records; for JSON lines their bodies, up to the first invalid line."""
        bodies = []
        try:
            for record in records:
                body = body_of(record) if self._is_json else record
                bodies += [body] if body else []
        finally:
            self.hand_over(bodies)

    def hand_over(self, records: list[bytes]) -> None:
        at = 0
        while at < len(records) and not self._signals.is_stopping:
            count = self._limiter.take(len(records) - at, time.monotonic())
            if not count:
                self._signals.wait(self._limiter.wait())
                continue
            for publisher in self._publishers:
                publisher.publish(records[at:at + count])
            at += count
            self._handed_over += count
            self._progress.update(self._handed_over, self._size)
        self.left = len(records) - at


def split_records(chunks: Iterable[bytes], delimiter: bytes, limit: int) -> Iterator[list[bytes]]:
    """Cut a stream at a delimiter; yield the records of each chunk. Pure.

    Empty records are skipped, and the last record may lack its delimiter. ValueError if the next
    record is longer than ``limit``; all earlier records were yielded.
    """
    rest = b""
    for data in chunks:
        *records, rest = (rest + data).split(delimiter)
        yield from _up_to(limit, records)
        # The rest may end with an incomplete delimiter.
        if len(rest) >= limit + len(delimiter):
            raise ValueError(_TOO_LONG % limit)
    yield from _up_to(limit, [rest])


def _up_to(limit: int, records: list[bytes]) -> Iterator[list[bytes]]:
    has_long = max(map(len, records), default=0) > limit
    if has_long:
        records = list(itertools.takewhile(lambda record: len(record) <= limit, records))
    yield list(filter(None, records))
    if has_long:
        raise ValueError(_TOO_LONG % limit)


def render(records: int, size: int, total: int | None, seconds: float) -> str:
    """Return the progress line: count, rate, and the time left if the total is known."""
    rate = records / seconds if seconds > 0 else 0.0
    counts = f"{records:,} {counted(records, 'message').partition(' ')[2]}, {show_size(size)}"
    counts += f", {rate:,.0f}/s"
    if not total or not size:
        return counts
    minutes, rest = divmod(int(max(0.0, (total - size) * seconds / size)), 60)
    return f"{min(1.0, size / total):4.0%} {counts}, {minutes}:{rest:02d} left"


class Progress:
    """Keeps a line with the progress up to date. ``total``: bytes, or None if unknown."""

    def __init__(self, stream: TextIO | None, total: int | None) -> None:
        self._stream = stream
        self._total = total
        self._began = time.monotonic()
        self._shown_at = 0.0

    def update(self, records: int, size: int, last: bool = False) -> None:
        now = time.monotonic()
        if self._stream is None or (now - self._shown_at < _PAUSE and not last):
            return
        self._shown_at = now
        line = render(records, size, self._total, now - self._began)
        # Erase the end of a longer line.
        self._stream.write(f"\r{line}\x1b[K" + ("\n" if last else ""))
        self._stream.flush()
