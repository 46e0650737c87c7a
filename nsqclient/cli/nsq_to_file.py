"""``nsqclient nsq_to_file``: archive topics in files, with the flags of the original.

Exit status 1 also if a file could not be finished at the end. SIGHUP closes the files; they are
opened again with the next message.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient import Config
from nsqclient.cli.archiver import Archive, Archiver, FileNames, RecordFormatter
from nsqclient.cli.archive_files import (
    CodecFactory, OutputPaths, OutsideError, RotationRules, gzip_codec, zstd_codec,
)
from nsqclient.cli.consumers import Consumers, make_dead_letters
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, NAME, NAMES, PATH, STRING, FlagError, Kind, Parsed,
    choice, limited, off_below_0,
)
from nsqclient.cli.lines import FORMATS, Renderer
from nsqclient.cli.tool_flags import (
    COUNT, POSITIVE, ToolFlags, add_http_timeouts, read_consumer_config,
)
from nsqclient.display import counted
from nsqclient.cluster.cluster import Cluster
from nsqclient.runtime.log_lines import PrefixedLogger
from nsqclient.runtime.process_signals import Second, Signals

PROGRAM = "nsq_to_file"

_STDERR = 2
#: Maximum seconds until the next attempt if no nsqlookupd answered.
_RETRY = 5.0
#: Seconds that the last commands of ``--exec-on-close`` have at the end.
_LAST_COMMANDS = 30.0

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


def _parse_pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as exc:
        raise FlagError(f"{text!r} is invalid: {exc}") from None


PATTERN = Kind("string", _parse_pattern)
LEVEL = limited(INT, lambda value: 1 <= value <= 9, "should be 1-9")
FILE_MODE = Kind("mode", _parse_mode, lambda mode: f"{mode:04o}")


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("What to archive")
    flags.add("topic", NAMES, (), "NSQ topic; may be repeated")
    flags.add("topic-pattern", PATTERN, None, "only topics whose names contain a match of this"
              " regular expression; without --topic: of all topics that nsqlookupd lists")
    flags.add("topic-refresh", off_below_0(DURATION), 60.0,
              "time between two searches for new topics; 0: search only at the start")
    flags.add("channel", NAME, "nsq_to_file", "NSQ channel")
    flags.require("channel")
    flags.add_in_flight(", and between two syncs")
    flags.add_dead_letters("topic for messages that are given up after"
                           " --consumer-opt=max_attempts,N (by default, none is given up)")
    flags.group("Files")
    # The user chooses a directory that others cannot write to.
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
    flags.add("gzip-level", LEVEL, 6, "gzip compression level (1-9; 1 is the fastest)")
    flags.add("zstd", BOOL, False, "compress with zstd (needs the package zstandard)")
    flags.exclude("gzip", "zstd")
    flags.group("Rotation (a file is also closed when <DATETIME> changes)")
    flags.add("rotate-size", COUNT, 0, "size in bytes, before compression, above which a file is"
              " closed; 0: no limit")
    flags.add("rotate-interval", off_below_0(DURATION), 0.0,
              "time after which a file is closed; 0: no limit")
    flags.add("skip-empty-files", BOOL, False, "do not create a file before there is a message for"
              " it")
    flags.add("sync-interval", POSITIVE, 30.0, "time between two syncs, after which messages are"
              " finished")
    flags.add("exec-on-close", STRING, "", "command to run for each finished file; the path of the"
              " file is its last argument and in $NSQ_FILE")
    flags.add_sources()
    add_http_timeouts(flags, POSITIVE)
    flags.add_common()
    flags.add("log-prefix", STRING, "[nsq_to_file] ", "prefix of the log lines of this command")
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    if not values["topic"] and not values["topic-pattern"]:
        raise FlagError("--topic or --topic-pattern required")
    if not values["topic"] and not values["lookupd-http-address"]:
        raise FlagError(
            "--lookupd-http-address must be specified when no --topic specified")
    config = read_consumer_config(values, PROGRAM)
    if values["dead-letter-topic"] and config.max_attempts == 0:
        raise FlagError("--dead-letter-topic needs --consumer-opt=max_attempts,N")
    tool = _Tool(values, config, _make_logger(values["log-prefix"]))
    return tool.run()


def _make_logger(log_prefix: str, about: str = "") -> PrefixedLogger:
    return PrefixedLogger(logging.getLogger("nsqclient.nsq_to_file"), log_prefix + about)


class _Tool:
    def __init__(self, values: Mapping[str, Any], config: Config, log: PrefixedLogger) -> None:
        self._values = values
        self._config = config
        self._log = log
        self._codec: CodecFactory = None
        if values["gzip"]:
            self._codec = gzip_codec(values["gzip-level"])
        elif values["zstd"]:
            self._codec = zstd_codec()
        self._work_dir: str = values["work-dir"] or values["output-dir"]
        self._rules = RotationRules(values["rotate-size"], values["rotate-interval"])
        self._archivers: list[Archiver] = []  # the watcher's thread adds to it
        self._on_closed: Callable[[str], None] = lambda path: None
        self._options: dict[str, Any] = {}
        self._topics = [topic for topic in dict.fromkeys(values["topic"]) if self._allows(topic)]
        if values["topic"] and not self._topics:
            raise FlagError("--topic-pattern allows none of the topics")
        self._names("check")  # a bad format ends the tool before it starts
        if "<TOPIC>" not in values["filename-format"] and len(self._topics) != 1:
            log.warning("--filename-format has no <TOPIC>: topics may share a file")

    def _allows(self, topic: str) -> bool:
        pattern: re.Pattern[str] | None = self._values["topic-pattern"]
        return pattern is None or pattern.search(topic) is not None

    def _names(self, topic: str) -> FileNames:
        values = self._values
        moves = os.path.abspath(self._work_dir) != os.path.abspath(values["output-dir"])
        return FileNames(
            values["filename-format"], values["datetime-format"], topic=topic,
            hostname=socket.gethostname(), host_identifier=values["host-identifier"],
            pid=os.getpid(), needs_rev=moves or self._codec is not None or any(self._rules),
            suffix=".gz" if values["gzip"] else ".zst" if values["zstd"] else "")

    def _paths(self, log: PrefixedLogger) -> OutputPaths:
        return OutputPaths(self._values["output-dir"], self._work_dir, self._codec, self._rules,
                           self._values["file-mode"], log)

    def run(self) -> int:
        values = self._values
        self._paths(self._log).probe()
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals(Second.EXIT, on_hangup=self._reopen))
            if values["exec-on-close"]:
                hook = CloseHook(values["exec-on-close"], self._log)
                stack.callback(hook.close)
                self._on_closed = hook
            if values["dead-letter-topic"]:
                self._options["on_giving_up"] = make_dead_letters(values, self._config, stack)
            consumers = Consumers(values, self._config, signals)
            stack.callback(consumers.stop)  # includes topics that appear during the stop
            for topic in self._topics:
                self._archive(consumers, topic)
            if not self._topics:
                watcher = self._make_watcher(consumers)
                stack.callback(watcher.stop)
                watcher.start()
            consumers.run()
        return 1 if any(archiver.has_failed for archiver in self._archivers) else 0

    def _make_watcher(self, consumers: Consumers) -> TopicWatcher:
        values = self._values

        def on_topic(topic: str) -> None:
            if not self._allows(topic):
                self._log.debug("skipping topic %s: it does not match --topic-pattern", topic)
                return
            try:
                self._archive(consumers, topic)
            except OutsideError as exc:
                self._log.error("topic %s is not archived: %s", topic, exc)

        cluster = Cluster(
            values["lookupd-http-address"], config=self._config,
            connect_timeout=values["http-client-connect-timeout"],
            timeout=values["http-client-request-timeout"])
        return TopicWatcher(
            cluster, values["topic-refresh"], on_topic, consumers.fail, self._log)

    def _archive(self, consumers: Consumers, topic: str) -> None:
        values = self._values
        log = _make_logger(values["log-prefix"], f"[{topic}/{values['channel']}] ")
        paths = self._paths(log)
        names = self._names(topic)
        paths.check(names.at(time.time()))
        render: RecordFormatter = lambda message: message.body + b"\n"  # noqa: E731 # as Go's
        if values["format"] == "jsonl":
            render = functools.partial(Renderer(as_json=True), topic)
        archive = Archive(
            names, paths, self._rules, render,
            by_timestamp=values["datetime-from"] == "message",
            skip_empty=values["skip-empty-files"], on_closed=self._on_closed, log=log,
        )
        archiver = Archiver(archive, max(1, values["max-in-flight"]), values["sync-interval"], log)
        paths.lock(topic if "<TOPIC>" in values["filename-format"] else "")
        try:
            archive.finish_left_files()
            consumers.add(topic, values["channel"], archiver, **self._options)
        except BaseException:
            paths.release()
            raise
        self._archivers.append(archiver)

    def _reopen(self) -> None:
        for archiver in list(self._archivers):
            archiver.reopen()


class TopicWatcher:
    """Calls ``on_topic`` once for each topic that appears; again at the next poll if it raises.

    Args:
        refresh: seconds between two polls; 0: poll until one is answered.
        on_wrong: called with the reasons if none of the given servers is an nsqlookupd.

    Threads: the calls come from its own thread.
    """

    def __init__(
        self, cluster: Cluster, refresh: float, on_topic: Callable[[str], None],
        on_wrong: Callable[[str], None], log: PrefixedLogger,
    ) -> None:
        self._cluster = cluster
        self._refresh = refresh
        self._on_topic = on_topic
        self._log = log
        self._on_wrong = on_wrong
        self._known: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nsq-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop: nothing is called afterwards. Blocks: during a call."""
        self._end.set()
        self._cluster.end_rounds()
        self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                answered = self.poll()
            except Exception:  # such as no further thread
                self._log.exception("could not retrieve topic list")
                answered = False
            refresh = self._refresh or _RETRY
            self._end.wait(min(refresh, _RETRY) if not answered else self._refresh or None)

    def poll(self) -> bool:
        answers, failures = self._cluster.each_lookupd(lambda lookupd: lookupd.topics())
        for failure in failures:
            self._log.error("could not retrieve topic list: %s", failure.text())
        if not answers and not self._known and all(each.is_lasting for each in failures):
            self._on_wrong("; ".join(each.text() for each in failures))
        found = set().union(*answers.values())
        for topic in sorted(found - self._known):
            if self._end.is_set():
                break
            try:
                self._on_topic(topic)
            except Exception as exc:
                self._log.error("topic %s cannot be archived yet: %s", topic, exc)
            else:
                self._known.add(topic)
        return bool(answers)


class CloseHook:
    """Runs ``--exec-on-close`` with the path of each finished file as its last argument.

    No shell runs it, so names of files need no quotes. A thread starts with the object.
    """

    def __init__(self, command: str, log: PrefixedLogger) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise FlagError(f"--exec-on-close {command!r}: {exc}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise FlagError(f"--exec-on-close {command!r}: no such program")
        self._log = log
        self._paths: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nsq-exec-on-close", daemon=True)
        self._thread.start()

    def __call__(self, path: str) -> None:
        self._paths.put(path)

    def close(self, timeout: float = _LAST_COMMANDS) -> bool:
        """Wait for the queued commands; return False if some were left."""
        self._paths.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._log.error(
                "--exec-on-close did not end in %g s; skipped about %s",
                timeout, counted(self._paths.qsize() - 1, "file"),
            )
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            path = self._paths.get()
            if path is None:
                return
            try:
                # stdout belongs to the tool. In its own session, the command gets no Ctrl-C.
                status = subprocess.run(
                    [*self._words, path], stdin=subprocess.DEVNULL, stdout=_STDERR,
                    env={**os.environ, "NSQ_FILE": path}, start_new_session=True, check=False,
                ).returncode
            except OSError as exc:
                self._log.error("--exec-on-close for %s: %s", path, exc)
            else:
                if status != 0:
                    self._log.error("--exec-on-close for %s: exit status %d", path, status)
