"""``nsqclient nsq_to_file``: archive topics in files, with the flags of the original.

Exit status: 0 after SIGINT or SIGTERM; 1 for an invalid configuration or nsqds that cannot be
reached, or when a file could not be finished at the end; 2 for bad flags. SIGHUP closes the files;
they are opened again with the next message.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nsqclient import Config, Consumer
from nsqclient.cli.archive.archive import Archive
from nsqclient.cli.archive.archiver import Archiver
from nsqclient.cli.archive.options import (
    PROGRAM, build_flags, check, make_formatter, read_codec, read_names, read_rules, read_work_dir,
)
from nsqclient.cli.archive.output_paths import OutputPaths, OutsideError
from nsqclient.cli.archive.topics import TopicFilter, TopicWatcher
from nsqclient.cli.consumers import Consumers, make_dead_letters
from nsqclient.cli.flags import CommandLineError, Parsed
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import ToolFlags, check_topics, read_config, turn_off_negative
from nsqclient.display import counted
from nsqclient.runtime.log_lines import PrefixedLogger

#: Seconds that the last commands of ``--exec-on-close`` have at the end.
_LAST_COMMANDS = 30.0


def build_command() -> ToolFlags:
    """The command and its flags."""
    return build_flags(_run)


def _run(parsed: Parsed) -> int:
    values = parsed.values
    turn_off_negative(values, "rotate-size", "rotate-interval", "topic-refresh")
    check(values)
    config = read_config(values, PROGRAM, "consumer-opt").replace(
        max_in_flight=values["max-in-flight"])
    if values["dead-letter-topic"] and config.max_attempts == 0:
        raise CommandLineError("--dead-letter-topic needs --consumer-opt=max_attempts,N")
    tool = _Tool(values, config, _make_logger(values["log-prefix"]))
    return tool.run()


def _make_logger(log_prefix: str, about: str = "") -> PrefixedLogger:
    """The tool's own logger: its lines begin with ``--log-prefix`` and what they are about."""
    return PrefixedLogger(logging.getLogger("nsqclient.nsq_to_file"), log_prefix + about)


class _Tool:
    """The archivers of all topics, and what they share."""

    def __init__(self, values: Mapping[str, Any], config: Config, log: PrefixedLogger) -> None:
        self._values = values
        self._config = config
        self._log = log
        self._allows = TopicFilter(values["topic-pattern"])
        self._codec = read_codec(values)
        # By topic; the watcher's thread changes it, whole entries at a time.
        self._archived: dict[str, tuple[Consumer, Archiver]] = {}
        self._has_failed = False
        self._on_closed: Callable[[str], None] = lambda path: None
        self._options: dict[str, Any] = {}
        topics = check_topics(values["topic"]) if values["topic"] else []
        self._topics = [topic for topic in topics if self._allows(topic)]
        if topics and not self._topics:
            raise CommandLineError("--topic-pattern allows none of the topics")
        read_names(values, "check")  # a bad format ends the tool before it starts
        if "<TOPIC>" not in values["filename-format"] and len(self._topics) != 1:
            log.warning("--filename-format has no <TOPIC>: topics may share a file")

    def run(self) -> int:
        """Run until a signal; return the exit status."""
        values = self._values
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals(self._reopen))
            if values["exec-on-close"]:
                hook = CloseHook(values["exec-on-close"], self._log)
                stack.callback(hook.close)
                self._on_closed = hook
            if values["dead-letter-topic"]:
                self._options["on_giving_up"] = make_dead_letters(values, self._config, stack)
            consumers = Consumers(values, self._config, signals)
            stack.callback(consumers.stop)  # of topics that appeared while others stopped
            for topic in self._topics:
                self._archive(consumers, topic)
            if not self._topics:
                watcher = self._make_watcher(consumers)
                stack.callback(watcher.stop)
                watcher.start()
            consumers.run()
        failed = [archiver.has_failed for _, archiver in self._archived.values()]
        return 1 if self._has_failed or any(failed) else 0

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

        def on_gone(topic: str) -> bool:
            return self._leave(consumers, topic)

        timeouts = values["http-client-connect-timeout"], values["http-client-request-timeout"]
        return TopicWatcher(
            values["lookupd-http-address"], self._config, timeouts, values["topic-refresh"],
            on_topic, on_gone, self._log, consumers.fail,
        )

    def _archive(self, consumers: Consumers, topic: str) -> None:
        """Begin to archive a topic."""
        values = self._values
        log = _make_logger(values["log-prefix"], f"[{topic}/{values['channel']}] ")
        rules = read_rules(values)
        compressed = values["gzip"] or values["zstd"]
        paths = OutputPaths(
            values["output-dir"], read_work_dir(values), self._codec,
            exclusive=bool(compressed or rules.interval), end_line=not compressed,
            rotate_size=rules.size, file_mode=values["file-mode"], log=log,
        )
        names = read_names(values, topic)
        paths.check(names.at(time.time()))
        archive = Archive(
            names, paths, rules, make_formatter(values["format"], topic),
            by_timestamp=values["datetime-from"] == "message",
            skip_empty=values["skip-empty-files"], on_closed=self._on_closed, log=log,
        )
        archiver = Archiver(archive, max(1, values["max-in-flight"]), values["sync-interval"], log)
        consumer = consumers.add(topic, values["channel"], archiver, **self._options)
        self._archived[topic] = consumer, archiver

    def _leave(self, consumers: Consumers, topic: str) -> bool:
        """Close the files of a topic that was deleted; false while an nsqd still has it."""
        if topic not in self._archived:
            return True  # the pattern excludes it
        consumer, archiver = self._archived[topic]
        if consumer.stats().connections:
            return False  # a restarted nsqlookupd does not know every topic yet
        self._log.info("topic %s was deleted: its files are closed", topic)
        consumers.remove(consumer)
        del self._archived[topic]
        self._has_failed = self._has_failed or archiver.has_failed
        return True

    def _reopen(self) -> None:
        for _, archiver in list(self._archived.values()):
            archiver.reopen()


class CloseHook:
    """Calls a command with the path of each finished file as its last argument.

    Args:
        command: words as in a shell; no shell runs it, so that names of files need no quotes.
        log: for commands that fail.

    Raises:
        CommandLineError: no such program.

    Life: a thread starts with the object; ``close()`` lets it finish what waits. Threads: any.
    """

    def __init__(self, command: str, log: PrefixedLogger) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise CommandLineError(f"--exec-on-close {command!r}: {exc}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise CommandLineError(f"--exec-on-close {command!r}: no such program")
        self._log = log
        self._paths: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nsq-exec-on-close", daemon=True)
        self._thread.start()

    def __call__(self, path: str) -> None:
        """Queue the command for a file; returns at once."""
        self._paths.put(path)

    def close(self, timeout: float = _LAST_COMMANDS) -> bool:
        """Wait for the queued commands; False if some were left. Blocks: ``timeout``."""
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
                # stdout belongs to the tool; a session of its own keeps a Ctrl-C away.
                status = subprocess.run(
                    [*self._words, path], stdin=subprocess.DEVNULL, stdout=_stderr(),
                    env={**os.environ, "NSQ_FILE": path}, start_new_session=True, check=False,
                ).returncode
            except OSError as exc:
                self._log.error("--exec-on-close for %s: %s", path, exc)
            else:
                if status != 0:
                    self._log.error("--exec-on-close for %s: exit status %d", path, status)


def _stderr() -> int:
    """The descriptor of stderr, or of nothing where a program has replaced it."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL
