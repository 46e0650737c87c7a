"""The flags of ``nsq_to_file``, and the checks that need no server."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any

from nsqclient.cli.archive.archive import RecordFormatter
from nsqclient.cli.archive.naming import FileNames, make_template
from nsqclient.cli.archive.output_file import CodecFactory, Plain, gzip_codec, zstd_codec
from nsqclient.cli.archive.rotation import RotationRules
from nsqclient.cli.goflags import (
    BOOL, DURATION, INT, PATH, STRING, STRINGS, CommandLineError, FlagError, Kind,
)
from nsqclient.cli.lines import Renderer
from nsqclient.cli.tool_flags import (
    LOG_LEVEL, ToolFlags, check_in_flight, check_name, check_sources, check_topics,
)
from nsqclient.message import Message

PROGRAM = "nsq_to_file"

#: The choices of ``--format``.
FORMATS = ("lines", "jsonl")

_SUMMARY = """\
Archives the messages of topics in files, one line for each. A message is finished only after
the disk has it (fsync), so a crash costs duplicates, never messages."""

_EXAMPLES = [
    ("one file per hour",
     "nsqclient nsq_to_file --topic=orders --output-dir=/data --lookupd-http-address=lookup:4161"),
    ("finished files only in /data, compressed, one per day and 100 MB",
     "nsqclient nsq_to_file ... --gzip --work-dir=/data/.work --datetime-format=%Y-%m-%d"
     " --rotate-size=100000000"),
    ("every topic that begins with web, with ids and times",
     "nsqclient nsq_to_file ... --topic-pattern='^web' --format=jsonl"),
]


def _choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"use {' or '.join(words)}")
        return text

    return Kind("|".join(words), parse, choices=words)


def _parse_mode(text: str) -> int:
    mode = int(text, 8) if re.fullmatch("[0-7]{3,4}", text) else 0
    if mode & ~0o777 or mode & 0o600 != 0o600:
        raise ValueError("use octal permissions with which the owner reads and writes, as 0640")
    return mode


FILE_MODE = Kind("mode", _parse_mode, lambda mode: f"{mode:04o}")


def build_flags() -> ToolFlags:
    """The flags."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    flags.group("What to archive")
    flags.add("topic", STRINGS, (), "NSQ topic; may be repeated")
    flags.add("topic-pattern", STRING, "", "only topics with this regular expression in their"
              " name; without --topic: of all that nsqlookupd knows")
    flags.add("topic-refresh", DURATION, 60.0, "how often to look for new topics; 0: at the start")
    flags.add("channel", STRING, "nsq_to_file", "NSQ channel")
    flags.add("max-in-flight", INT, 200, "messages in flight, and between two syncs, at most")
    flags.add_dead_letters("publish here messages that are given up after"
                           " --consumer-opt=max_attempts,N (without either, nothing is given up)")
    flags.group("Files")
    # The original's default; the user chooses a directory that others cannot write to.
    flags.add("output-dir", PATH, "/tmp", "directory of the files")  # nosec B108 # see above
    flags.add("work-dir", PATH, "", "directory of unfinished files (default: the output-dir)")
    flags.add("filename-format", STRING, "<TOPIC>.<HOST><REV>.<DATETIME>.log",
              "name of files, also with directories. <TOPIC>, <HOST>, <PID>, <DATETIME>; <REV>"
              " counts files of one name")
    flags.add("datetime-format", STRING, "%Y-%m-%d_%H", "strftime compatible format of <DATETIME>")
    flags.add("datetime-from", _choice("write", "message"), "write",
              "which time: of the writing, or when nsqd got the message")
    flags.add("host-identifier", STRING, "", "<HOST>, with <SHORT_HOST> or <HOSTNAME> in it"
              " (default: the short host name)")
    flags.add("file-mode", FILE_MODE, 0o640, "permissions of new files, in octal, less the umask")
    flags.add("format", _choice(*FORMATS), "lines", "lines: bodies; jsonl: JSON objects with"
              " topic, id, timestamp, attempts, nsqd, and body or body_base64")
    flags.add("gzip", BOOL, False, "gzip the files; each sync ends a gzip member")
    flags.add("gzip-level", INT, 6, "gzip compression level (1-9, 1=BestSpeed)")
    flags.add("zstd", BOOL, False, "compress with zstd (needs the package zstandard)")
    flags.add("zstd-level", INT, 3, "zstd compression level (1-22)")
    flags.group("When a file ends (also when <DATETIME> changes)")
    flags.add("rotate-size", INT, 0, "when it has more bytes, before compression")
    flags.add("rotate-interval", DURATION, 0.0, "when it is open for longer")
    flags.add("skip-empty-files", BOOL, False, "make no file before there is a message for it")
    flags.add("sync-interval", DURATION, 30.0, "how often to sync files and finish messages")
    flags.add("exec-on-close", STRING, "", "command to run for each finished file; its path is"
              " the last argument and in $NSQ_FILE")
    flags.add_sources()
    flags.add("http-client-connect-timeout", DURATION, 2.0, "timeout for connecting to nsqlookupd")
    flags.add("http-client-request-timeout", DURATION, 5.0, "timeout for a request to nsqlookupd")
    # The original of this tool, and of no other, checks it after the flags: status 1, not 2.
    flags.add_common(LOG_LEVEL._replace(parse=str))
    flags.add("log-prefix", STRING, "[nsq_to_file] ", "what this tool's own log lines begin with")
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
