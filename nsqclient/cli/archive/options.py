"""The flags of ``nsq_to_file``, and the checks that need no server."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient.cli.archive.archive import RecordFormatter
from nsqclient.cli.archive.naming import FileNames, RotationRules, make_template
from nsqclient.cli.archive.output_file import CodecFactory, Plain, gzip_codec, zstd_codec
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, PATH, STRING, STRINGS, CommandLineError, FlagError, Kind, Parsed,
    choice,
)
from nsqclient.cli.lines import FORMATS, Renderer
from nsqclient.cli.tool_flags import (
    LOG_LEVEL, ToolFlags, check_in_flight, check_name, check_sources, check_topics,
)
from nsqclient.message import Message

PROGRAM = "nsq_to_file"

_SUMMARY = """\
Archives the messages of topics in files, one message per line. A message is finished only after
it is on disk (fsync), so a crash may duplicate messages, but loses none."""

_EXAMPLES = [
    ("write one file per hour",
     "nsqclient nsq_to_file --topic=orders --output-dir=/data --lookupd-http-address=lookup:4161"),
    ("write compressed files of up to 100 MB per day; only finished files appear in /data",
     "nsqclient nsq_to_file ... --gzip --work-dir=/data/.work --datetime-format=%Y-%m-%d"
     " --rotate-size=100000000"),
    ("archive every topic whose name begins with web, with ids and times",
     "nsqclient nsq_to_file ... --topic-pattern='^web' --format=jsonl"),
]


def _parse_mode(text: str) -> int:
    mode = int(text, 8) if re.fullmatch("[0-7]{3,4}", text) else 0
    if mode & ~0o777 or mode & 0o600 != 0o600:
        raise ValueError("use octal permissions with which the owner reads and writes, as 0640")
    return mode


FILE_MODE = Kind("mode", _parse_mode, lambda mode: f"{mode:04o}")


def build_flags(body: Callable[[Parsed], int]) -> ToolFlags:
    """Build the command that ``body`` carries out."""
    flags = ToolFlags(PROGRAM, body, _SUMMARY, _EXAMPLES)
    flags.group("What to archive")
    flags.add("topic", STRINGS, (), "NSQ topic; may be repeated")
    flags.add("topic-pattern", STRING, "", "only topics whose names contain a match of this"
              " regular expression; without --topic: of all topics that nsqlookupd lists")
    flags.add("topic-refresh", DURATION, 60.0, "time between two searches for new topics; 0:"
              " search only at the start")
    flags.add("channel", STRING, "nsq_to_file", "NSQ channel")
    flags.add("max-in-flight", INT, 200, "maximum number of messages in flight, and between two"
              " syncs")
    flags.add_dead_letters("topic for messages that are given up after"
                           " --consumer-opt=max_attempts,N (by default, none is given up)")
    flags.group("Files")
    # The original's default; the user chooses a directory that others cannot write to.
    flags.add("output-dir", PATH, "/tmp", "directory for the files")  # nosec B108 # see above
    flags.add("work-dir", PATH, "", "directory for unfinished files (default: --output-dir)")
    flags.add("filename-format", STRING, "<TOPIC>.<HOST><REV>.<DATETIME>.log",
              "format of the file names, which may include directories; may contain <TOPIC>,"
              " <HOST>, <PID>, <DATETIME> and <REV> (a number for files of the same name)")
    flags.add("datetime-format", STRING, "%Y-%m-%d_%H", "strftime format of <DATETIME>")
    flags.add("datetime-from", choice("write", "message"), "write",
              "time used for <DATETIME>: when the message is written (write), or when nsqd received"
              " it (message)")
    flags.add("host-identifier", STRING, "", "value of <HOST>, which may contain <SHORT_HOST>"
              " or <HOSTNAME> (default: the short host name)")
    flags.add("file-mode", FILE_MODE, 0o640, "mode of new files in octal, less the umask")
    flags.add("format", choice(*FORMATS), "lines", "format of the files: lines (bodies), or"
              " jsonl (JSON objects with topic, id, timestamp, attempts, nsqd, and body or"
              " body_base64)")
    flags.add("gzip", BOOL, False, "compress with gzip; each sync ends a gzip member")
    flags.add("gzip-level", INT, 6, "gzip compression level (1-9; 1 is the fastest)")
    flags.add("zstd", BOOL, False, "compress with zstd (needs the package zstandard)")
    flags.add("zstd-level", INT, 3, "zstd compression level (1-22)")
    flags.group("Rotation (a file is also closed when <DATETIME> changes)")
    flags.add("rotate-size", INT, 0, "size in bytes, before compression, above which a file is"
              " closed; 0: no limit")
    flags.add("rotate-interval", DURATION, 0.0, "time after which a file is closed; 0: no limit")
    flags.add("skip-empty-files", BOOL, False, "do not create a file before there is a message for"
              " it")
    flags.add("sync-interval", DURATION, 30.0, "time between two syncs, after which messages are"
              " finished")
    flags.add("exec-on-close", STRING, "", "command to run for each finished file; the path of the"
              " file is its last argument and in $NSQ_FILE")
    flags.add_sources()
    flags.add("http-client-connect-timeout", DURATION, 2.0, "timeout for connecting to nsqlookupd")
    flags.add("http-client-request-timeout", DURATION, 5.0, "timeout for a request to nsqlookupd")
    # The original of this tool, and of no other, checks it after the flags: status 1, not 2.
    flags.add_common(LOG_LEVEL._replace(choices=()))
    flags.add("log-prefix", STRING, "[nsq_to_file] ", "prefix of the log lines of this command")
    return flags


def check(values: Mapping[str, Any]) -> None:
    """Check combinations of flags.

    Raises:
        CommandLineError: in the words of the original, where it has some.
    """
    if not values["channel"]:
        raise FlagError("--channel is required")
    check_name(values["channel"], "channel")
    for name in ("http-client-connect-timeout", "http-client-request-timeout", "sync-interval"):
        if values[name] <= 0:
            raise CommandLineError(f"--{name} should be positive")
    check_in_flight(values)
    check_sources(values)
    if not 1 <= values["gzip-level"] <= 9:
        raise CommandLineError(
            f"invalid --gzip-level value ({values['gzip-level']}), should be 1-9")
    if values["gzip"] and values["zstd"]:
        raise FlagError("use --gzip or --zstd not both")
    if values["topic"]:
        check_topics(values["topic"])
    elif not values["topic-pattern"]:
        raise FlagError("--topic or --topic-pattern required")
    elif not values["lookupd-http-address"]:
        raise CommandLineError(
            "--lookupd-http-address must be specified when no --topic specified")
    if values["dead-letter-topic"]:
        check_name(values["dead-letter-topic"], "dead-letter-topic")


def format_line(message: Message) -> bytes:
    """The body and an end of line, as the original writes it."""
    return message.body + b"\n"


def make_formatter(choice: str, topic: str) -> RecordFormatter:
    """Return the formatter of ``--format``; jsonl is what ``nsq_tail --json`` prints."""
    if choice == "lines":
        return format_line
    render = Renderer(as_json=True)
    return lambda message: render(topic, message)


def read_codec(values: Mapping[str, Any]) -> CodecFactory:
    """Return the codec of the files."""
    if values["gzip"]:
        return gzip_codec(values["gzip-level"])
    return zstd_codec(values["zstd-level"]) if values["zstd"] else Plain


def read_rules(values: Mapping[str, Any]) -> RotationRules:
    """Return when files end."""
    return RotationRules(values["rotate-size"], values["rotate-interval"])


def read_work_dir(values: Mapping[str, Any]) -> str:
    """Return the directory of unfinished files."""
    work_dir: str = values["work-dir"] or values["output-dir"]
    return work_dir


def read_names(values: Mapping[str, Any], topic: str) -> FileNames:
    """Return the names of one topic's files.

    Raises:
        CommandLineError: ``<REV>`` is missing.
    """
    compressed = values["gzip"] or values["zstd"]
    moves = os.path.abspath(read_work_dir(values)) != os.path.abspath(values["output-dir"])
    template = make_template(
        values["filename-format"],
        topic=topic,
        hostname=socket.gethostname(),
        host_identifier=values["host-identifier"],
        pid=os.getpid(),
        needs_rev=bool(compressed or moves or values["rotate-size"] or values["rotate-interval"]),
        suffix=".gz" if values["gzip"] else ".zst" if values["zstd"] else "",
    )
    return FileNames(template, values["datetime-format"])
