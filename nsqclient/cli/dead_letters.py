"""``nsqclient dead_letters``: ``list``, ``show``, ``replay`` and ``delete`` dead letters.

Letters are files in a directory or messages in a topic. Commands on a topic take the next messages,
since NSQ cannot read a message by id. A killed replay can cause duplicates, but loses nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from nsqclient import Config, ConnectError, DeadLetter, DeadLetterDirectory, NSQError
from nsqclient.cli.command import CommandGroup
from nsqclient.cli.consumers import make_guard
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, NAME, PATH, STRINGS, CommandLineError, Parsed, limited, not_negative,
    positive,
)
from nsqclient.cli.tool_flags import SOURCES, ToolFlags, read_config
from nsqclient.partitioned import Producer
from nsqclient.partitioned.channel_depth import DepthQuery
from nsqclient.consumer.connections import NsqdSources
from nsqclient.cluster.look_guard import LookingConsumer, LookRefusedError, Obstacle
from nsqclient.display import counted, printable
from nsqclient.protocol.commands import DeliveredBody
from nsqclient.runtime.delays import RateLimiter
from nsqclient.runtime.process_signals import Second, Signals

PROGRAM = "dead_letters"

_MAX_IN_FLIGHT = _PEEK_IN_FLIGHT = 10
_STOP_TIMEOUT = 10.0

DIRECTORY = limited(PATH, os.path.isdir, "is not a directory")

_SUMMARIES = {
    "list": """\
Lists dead letters, one per line: name or id, time, origin, number of attempts and reason. Dead
letters in a topic are received and requeued, which adds one to their attempts.""",
    "show": """\
Shows dead letters with all details, including the traceback and the body. Dead letters in a topic
are received and requeued, which adds one to their attempts.""",
    "replay": """\
Publishes the bodies of dead letters to one topic (--destination-topic), or to the topics that they
name (--to-origin). A dead letter is deleted or finished only after nsqd has stored its body: a
message may be duplicated, but not lost.""",
    "delete": """\
Permanently deletes dead letters from a directory, or finishes dead letters of a topic.""",
}

_EXAMPLES = {
    "list": [
        ("list the dead letters in a directory", "nsqclient dead_letters list --path=dead-letters"),
        ("list the next 20 dead letters of a topic",
         "nsqclient dead_letters list --nsqd-tcp-address=127.0.0.1:4150"
         " \\\n      --topic=orders.dead --count=20"),
    ],
    "show": [
        ("show one dead letter of a directory",
         "nsqclient dead_letters show --path=dead-letters --id=0d3c1f6a7e8b9a0b"),
    ],
    "replay": [
        ("replay the next 100 dead letters of a topic, 20 per second",
         "nsqclient dead_letters replay --lookupd-http-address=127.0.0.1:4161 \\\n"
         "      --topic=orders.dead --count=100 --rate=20 --destination-topic=orders"),
        ("replay all dead letters of a directory to their original topics",
         "nsqclient dead_letters replay --path=dead-letters --all --to-origin \\\n"
         "      --nsqd-tcp-address=127.0.0.1:4150"),
    ],
    "delete": [
        ("delete one dead letter from a directory",
         "nsqclient dead_letters delete --path=dead-letters --id=0d3c1f6a7e8b9a0b"),
    ],
}


def _flags(command: str) -> ToolFlags:
    flags = ToolFlags(
        f"{PROGRAM} {command}", functools.partial(_run, command), _SUMMARIES[command],
        _EXAMPLES[command])
    is_shown = command in ("list", "show")
    flags.group("Dead letters (--path or --topic is required)")
    flags.add("path", DIRECTORY, "", "directory that a DeadLetterDirectory writes to")
    flags.add("topic", NAME, "", "topic that a DeadLetterTopic publishes to")
    flags.require("path", "topic")
    flags.add("channel", NAME, "dead_letters", "channel of that topic")
    flags.require("channel")
    flags.add("create-channel", BOOL, False, "create the channel if it does not exist; the first"
              " channel of a topic\n      takes the messages that wait in the topic")
    flags.group("Selection")
    flags.add("id", STRINGS, (), "with --path: message id, or file name if several files have"
              " the same id; may be repeated")
    flags.need("id", "path")
    if not is_shown:
        flags.add("all", BOOL, False, "with --path: all dead letters")
        flags.need("all", "path")
        flags.exclude("id", "all")
        flags.need("path", "id", "all")
        flags.need("topic", "count")
    elif command == "show":
        flags.need("path", "id")
    flags.add("count", positive(INT), 20 if command == "list" else 1 if command == "show" else 0,
              "with --topic: number of dead letters" + ("" if is_shown else "; required"))
    flags.add("timeout", DURATION, 5.0,
              "with --topic: end with an error if no nsqd was connected for this time")
    if is_shown:
        flags.group("Output")
        flags.add("json", BOOL, False, "print one JSON object per dead letter")
    if command == "replay":
        flags.group("Destination (the nsqds of the addresses below)")
        flags.add("destination-topic", NAME, "", "topic to publish to")
        flags.add("to-origin", BOOL, False, "publish to the topic that each dead letter names: you"
                  " trust everybody\n      who can publish to the dead-letter topic, or write to"
                  " the directory")
        flags.require("destination-topic", "to-origin")
        flags.exclude("destination-topic", "to-origin")
        flags.add("rate", not_negative(INT), 100,
                  "maximum number of messages per second; 0: no limit")
        flags.need("path", *SOURCES)
    flags.add_sources(only_looks=True, required=False)
    flags.need("topic", *SOURCES)
    flags.add_common(quiet=True)
    return flags


def build_command() -> CommandGroup:
    return CommandGroup(f"nsqclient {PROGRAM}", "List, show, replay and delete dead letters.", {
        name: (summary, functools.partial(_flags, name)) for name, summary in COMMANDS.items()})


def _run(command: str, parsed: Parsed) -> int:
    values = parsed.values
    config = read_config(values, PROGRAM, "consumer-opt")
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(Signals(Second.EXIT))
        letters: _Letters = (
            _TopicLetters(values, config, signals) if values["topic"] else
            _DirectoryLetters(values, signals))
        if command in ("list", "show"):
            return _show(values, letters, is_short=command == "list")
        if command == "replay":
            producer = Producer(
                nsqd_tcp_addresses=list(dict.fromkeys(values["nsqd-tcp-address"])),
                lookupd_http_addresses=values["lookupd-http-address"], config=config)
            return _take(values, letters, _replayer(
                values, stack.enter_context(producer), signals), "replayed")
        return _take(values, letters, lambda name, letter: f"deleted {name}", "deleted")


# -- where the letters are


#: Name, letter, and what removes it.
_Named = Generator[tuple[str, DeadLetter, Callable[[], None]], None, None]


class _Letters(ABC):
    """The letters of a command. ``problems`` counts letters that could not be read or replayed."""

    def __init__(self) -> None:
        self.problems = 0
        #: Number of letters. For a topic: the number received, or --count after a signal.
        self.total = 0

    @abstractmethod
    def read(self, *, takes: bool) -> _Named:
        """Yield (name, letter, remover); ``takes``: the caller removes letters."""

    def report(self, name: str, problem: object) -> None:
        self.problems += 1
        sys.stderr.write(printable(f"{PROGRAM}: {name}: {problem}") + "\n")


class _DirectoryLetters(_Letters):
    def __init__(self, values: Mapping[str, Any], signals: Signals) -> None:
        super().__init__()
        self._directory = DeadLetterDirectory(values["path"])
        self._signals = signals
        names = self._directory.names()
        self._names = [_find(names, wanted, values["path"]) for wanted in values["id"]] or names
        self.total = len(self._names)

    def read(self, *, takes: bool) -> _Named:
        for name in self._names:
            if self._signals.is_stopping:
                return
            try:
                letter = self._directory.read(name)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as exc:
                self.report(name, exc.strerror)
                continue
            except ValueError as exc:
                aside = f", and now {self._directory.set_aside(name)}" if takes else ""
                self.report(name, f"{exc}{aside}")
                continue
            yield name, letter, functools.partial(self._directory.delete, name)


def _find(names: Sequence[str], wanted: str, path: str) -> str:
    found = [name for name in names if wanted in (name, *name.split("+")[2:3])]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandLineError(f"no dead letter in {path} has the id {printable(wanted, 100)}")
    raise CommandLineError(
        f"{len(found)} dead letters have the id {wanted}: give a name:"
        f" {printable(', '.join(found))}")


class _TopicLetters(_Letters):
    def __init__(self, values: Mapping[str, Any], config: Config, signals: Signals) -> None:
        super().__init__()
        self._values = values
        self._config = config
        self._signals = signals
        self._refused: dict[str, str] = {}  # nsqd -> why it is left out

    def read(self, *, takes: bool) -> _Named:
        """Yield up to ``--count`` letters, until the channel was seen empty."""
        values = self._values
        # A peek holds all its messages, and all may come from a single nsqd. A take requeues the
        # messages that it has not reached at the end, so it keeps few in flight.
        in_flight = (min(values["count"], _MAX_IN_FLIGHT) if takes
                     else values["count"] * _PEEK_IN_FLIGHT)
        topic, channel = values["topic"], values["channel"]
        nsqds = list(dict.fromkeys(values["nsqd-tcp-address"]))
        consumer = LookingConsumer(
            topic, channel, config=self._config, nsqd_tcp_addresses=nsqds,
            lookupd_http_addresses=values["lookupd-http-address"], max_in_flight=in_flight,
            guard=make_guard(values, self._config, topic, channel,
                             may_create=values["create-channel"]),
            on_error=self._on_error,
        )
        query = DepthQuery(
            topic, channel, self._config,
            NsqdSources(nsqds, values["lookupd-http-address"],
                        nsqd_http=values["nsqd-http-address"]),
            creates_channel=values["create-channel"])
        try:
            with contextlib.closing(consumer.take(
                values["count"], query, is_over=lambda: self._signals.is_stopping, holds=not takes,
                timeout=values["timeout"], silence=values["timeout"],
            )) as messages:
                for message in filter(None, messages):
                    self.total += 1
                    letter = DeadLetter.parse(message.body)
                    yield (letter.id or message.id.decode("ascii", "replace"), letter,
                           message.finish)
        except ConnectError as exc:
            if isinstance(exc.__cause__, LookRefusedError):
                raise CommandLineError(
                    f"{exc.__cause__.address}: {_refusal(exc.__cause__)}") from exc
            raise
        finally:
            consumer.stop(_STOP_TIMEOUT)
            if self._signals.is_stopping:
                self.total = values["count"]
        for address, reason in self._refused.items():
            self.report(address, reason)

    def _on_error(self, error: NSQError) -> None:
        if isinstance(error, LookRefusedError) and error.obstacle is not Obstacle.NO_TOPIC:
            self._refused[error.address] = f"left out: {_refusal(error)}"


def _refusal(error: LookRefusedError) -> str:
    if error.obstacle is Obstacle.NO_CHANNEL:
        return f"{error.reason}, or give --create-channel"
    return error.reason


# -- the commands


def _show(values: Mapping[str, Any], letters: _Letters, *, is_short: bool) -> int:
    count = 0
    with contextlib.closing(letters.read(takes=False)) as found:
        for name, letter, _ in found:
            count += 1
            name = printable(name)  # a file name, or an id that a server sent
            if values["json"]:
                facts = letter.facts() if is_short else letter.to_json()
                print(json.dumps({"name": name, **facts}, ensure_ascii=False), flush=True)
            else:
                print((_line if is_short else _page)(name, letter), flush=True)
    if not count and not letters.problems:
        sys.stderr.write(f"{PROGRAM}: {_none(values)}\n")
    return 1 if letters.problems else 0


def _replayer(
    values: Mapping[str, Any], producer: Producer, signals: Signals
) -> Callable[[str, DeadLetter], str | None]:
    limiter = RateLimiter(values["rate"], time.monotonic())

    def publish(name: str, letter: DeadLetter) -> str | None:
        topic = letter.topic if values["to-origin"] else values["destination-topic"]
        if not topic:
            raise CommandLineError("it does not name its topic: give --destination-topic")
        while not limiter.take(1, time.monotonic()):
            if signals.wait(limiter.wait()):
                return None
        producer.publish(topic, DeliveredBody(letter.body))
        return f"replayed {name} to {topic}"

    return publish


def _take(
    values: Mapping[str, Any], letters: _Letters, work: Callable[[str, DeadLetter], str | None],
    done: str,
) -> int:
    """Do the work of each letter, then remove it; a letter that fails stays.

    A directory's other letters follow. A topic would deliver the same letter again, so it ends
    there.
    """
    count = 0
    with contextlib.closing(letters.read(takes=True)) as taken:
        for name, letter, remove in taken:
            try:
                text = work(name, letter)
            except (NSQError, CommandLineError) as exc:
                letters.report(name, f"not {done}: {exc}")
                if values["topic"]:
                    break
                continue
            if text is None:  # a signal came
                break
            remove()
            count += 1
            print(printable(text), flush=True)
    if count or letters.problems:
        print(f"{done} {count} of {counted(letters.total, 'dead letter')}")
    else:
        sys.stderr.write(f"{PROGRAM}: {_none(values)}\n")
    return 1 if letters.problems else 0


def _none(values: Mapping[str, Any]) -> str:
    if values["path"]:
        return f"no dead letter in {values['path']}"
    return f"no dead letter in {values['topic']}/{values['channel']}"


def _line(name: str, letter: DeadLetter) -> str:
    if not letter.id:
        return f"{name}  a body of {counted(len(letter.body), 'byte')}, without an envelope"
    return "  ".join(filter(None, [
        name, letter.given_up_at, f"{letter.topic}/{letter.channel}" if letter.topic else "",
        counted(letter.attempts, "attempt"), letter.reason or letter.exception,
    ]))


def _page(name: str, letter: DeadLetter) -> str:
    envelope = letter.to_json()
    body, encoding = envelope.pop("body"), envelope.pop("body_encoding")
    trace = envelope.pop("traceback")
    lines = [f"{name}:"]
    lines += [f"  {key}: {value}" for key, value in envelope.items() if value]
    if trace:
        lines += ["  traceback:", *(f"    {line}" for line in trace.rstrip("\n").split("\n"))]
    shown = body.split("\n") if encoding == "utf-8" else [body]
    lines += [f"  body ({encoding}):", *(f"    {printable(line)}" for line in shown)]
    return "\n".join(lines)


COMMANDS = {
    "list": "list them, a line for each",
    "show": "show them with traceback and body",
    "replay": "publish their bodies again",
    "delete": "delete them",
}
