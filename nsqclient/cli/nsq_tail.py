"""``nsqclient nsq_tail``: print the messages of topics, with the flags of the original.

A message is finished after it was written. If the reader of stdout ends, so does the tool, without
an error.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

from nsqclient import Message, Requeue
from nsqclient.cli.consumers import Consumers, make_guard
from nsqclient.cli.flags import BOOL, NAME, NAMES, CommandLineError, Kind, Parsed
from nsqclient.cli.lines import FIELDS, Renderer, parse_format
from nsqclient.cli.tool_flags import COUNT, ToolFlags, read_consumer_config
from nsqclient.runtime.process_signals import Second, Signals

PROGRAM = "nsq_tail"

_STDOUT = 1

FORMAT = Kind("format", parse_format)

_SUMMARY = """\
Prints the messages of one or more topics to stdout, one per line; logs go to stderr. Without
--channel, it creates a temporary channel, so other consumers still receive every message, and
messages from before its start are not shown. It does so only if the topic exists and has a
permanent channel: the first channel of a topic would take the messages that wait."""

_EXAMPLES = [
    ("watch a topic", "nsqclient nsq_tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders"),
    ("ten messages of two topics, wherever they are",
     "nsqclient nsq_tail --lookupd-http-address=lookup:4161 --topic=a --topic=b -n 10"),
    ("for jq", "nsqclient nsq_tail ... --topic=orders --json | jq .body"),
]


def build_command() -> ToolFlags:
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("What to show")
    flags.add_topic(NAMES)
    flags.add("channel", NAME, "", "NSQ channel (default: a new ephemeral channel)")
    flags.add("n", COUNT, 0, "total number of messages after which to stop; 0: no limit")
    flags.add_in_flight()
    flags.group("Output")
    flags.add("print-topic", BOOL, False, "print \"TOPIC | \" before each message")
    flags.add("format", FORMAT, None, "output format: text with fields in braces, \\n and"
              " \\t; " + "; ".join(f"{{{name}}}: {text}" for name, (text, _) in FIELDS.items()))
    flags.add("json", BOOL, False, "print JSON objects: topic, id, timestamp, attempts, nsqd,"
              " and body, or body_base64 if the body is not UTF-8")
    flags.exclude("json", "format")
    flags.add("gunzip", BOOL, False, "decompress bodies that are compressed with gzip")
    flags.add("no-newline", BOOL, False, "do not print a newline after each message")
    flags.add_sources(only_looks=True)
    flags.add_common()
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    channel = values["channel"] or f"tail{random.randrange(999_999):06d}#ephemeral"
    limit, max_in_flight = values["n"], values["max-in-flight"]
    config = read_consumer_config(values, PROGRAM)
    if limit:
        config = config.replace(max_in_flight=min(limit, max_in_flight))
    render = Renderer(
        values["format"], as_json=values["json"], gunzip=values["gunzip"],
        print_topic=values["print-topic"], end=b"" if values["no-newline"] else b"\n",
    )
    with Signals(Second.EXIT) as signals:
        consumers = Consumers(values, config, signals)
        tail = Tail(_STDOUT, limit, signals.stop, consumers.limit_in_flight)
        for topic in dict.fromkeys(values["topic"]):
            guard = None if values["channel"] else make_guard(values, config, topic, channel)
            consumers.add(topic, channel, _handler(tail, render, topic), guard=guard,
                          is_limited=bool(limit) and limit < max_in_flight)
        consumers.run()
    if tail.error is not None and not isinstance(tail.error, BrokenPipeError):
        raise CommandLineError(f"cannot write to stdout: {tail.error}")
    return 0


def _handler(tail: Tail, render: Renderer, topic: str) -> Callable[[Message], None]:
    return lambda message: tail.show(render(topic, message))


class Tail:
    """Writes messages to a descriptor up to a limit (0: none), or until a write fails.

    Before ``show`` returns, ``stop`` is called once at the end, and ``lower`` with how many are
    left.

    Threads: any; messages are written one after the other.
    """

    def __init__(
        self, fd: int, limit: int, stop: Callable[[], None],
        lower: Callable[[int], None] = lambda left: None,
    ) -> None:
        self._fd = fd
        self._limit = limit
        self._stop = stop
        self._lower = lower
        self._lock = threading.Lock()  # held to write: lines of several topics do not mix
        self._shown = 0
        self.error: OSError | None = None

    def show(self, data: bytes) -> None:
        """Write one message. Raises Requeue if it was not written."""
        with self._lock:
            if self.error is not None or (self._limit and self._shown >= self._limit):
                raise Requeue(delay=0, backoff=False)
            try:
                view = memoryview(data)
                while view:  # past Python's buffers
                    view = view[os.write(self._fd, view):]
            except OSError as exc:
                self.error = exc
            else:
                self._shown += 1
                if self._limit:
                    # Before the FIN, after which nsqd would send one more.
                    self._lower(self._limit - self._shown)
                if self._shown != self._limit:
                    return
        self._stop()
        if self.error is not None:
            raise Requeue(delay=0, backoff=False)
