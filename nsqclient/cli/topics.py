"""``nsqclient topics``, ``topic`` and ``channel``: a table of a cluster, and actions on it.

Exit status 1 if a server did not answer, or did not carry out an action.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from nsqclient.cli.command import Command, CommandGroup
from nsqclient.cli.flags import BOOL, CommandLineError, FlagError, Parsed
from nsqclient.cli.nsq_stat import Answer, Counters, make_cluster, rates, total
from nsqclient.cli.tool_flags import NOT_NEGATIVE, ToolFlags, checked_name
from nsqclient.display import counted, printable, table
from nsqclient.cluster.actions import EVERYWHERE, ActionError, ClusterActions
from nsqclient.cluster.ask_all import ServerFailure, UpstreamError
from nsqclient.cluster.cluster import Cluster, Node
from nsqclient.partitioned.http import fetch_stats
from nsqclient.http.models import Stats
from nsqclient.http.nsqd import NsqdHTTP

_TOPICS_SUMMARY = """\
Prints a table of topics and their channels, summed over all nsqds: depth, messages in flight,
messages that come and go per second, and consumers. The status is 1 if a server did not answer."""

_TOPICS_EXAMPLES = [
    ("every topic of a cluster", "nsqclient topics --lookupd-http-address=127.0.0.1:4161"),
    ("for a script", "nsqclient topics orders --nsqd-http-address=127.0.0.1:4151 --json"),
]

_ACTIONS = {
    "create": ("make a topic on every server", "make a channel, and its topic, on every server"),
    "pause": ("send no messages to its channels", "send no messages to its consumers"),
    "unpause": ("send messages again", "send messages again"),
    "empty": ("discard the messages that no channel has yet", "discard its messages"),
    "delete": ("delete it with its channels and messages", "delete it with its messages"),
}

#: Actions that need no --yes in a script.
_HARMLESS = ("create", "unpause")

_HEADING = ("TOPIC", "CHANNEL", "DEPTH", "IN FLIGHT", "DEFERRED", "IN/S", "OUT/S", "CONSUMERS", "")


def build_topics() -> Command:
    flags = ToolFlags("topics", _topics, _TOPICS_SUMMARY, _TOPICS_EXAMPLES, words="[TOPIC ...]",
                      flags_anywhere=True)
    flags.add_http_servers()
    flags.group("Output")
    flags.add("interval", NOT_NEGATIVE, 1.0,
              "time over which messages per second are counted; 0: do not count")
    flags.add("json", BOOL, False, "print a JSON object")
    flags.add_common(quiet=True)
    return flags


def build_topic() -> CommandGroup:
    return _group("topic")


def build_channel() -> CommandGroup:
    return _group("channel")


def _group(noun: str) -> CommandGroup:
    return CommandGroup(f"nsqclient {noun}", f"Changes a {noun} on all servers of a cluster.", {
        action: (texts[noun == "channel"], functools.partial(_action, noun, action))
        for action, texts in _ACTIONS.items()})


def _action(noun: str, action: str) -> Command:
    words = "TOPIC CHANNEL" if noun == "channel" else "TOPIC"
    text = _ACTIONS[action][noun == "channel"]
    script = "" if action in _HARMLESS else "; in a script give --yes"
    summary = (f"{text[0].upper()}{text[1:]}. It asks first{script}.\n"
               "The status is 1 if a server did not do it; such servers are listed.")
    example = f"nsqclient {noun} {action} orders {'mail ' if noun == 'channel' else ''}"
    flags = ToolFlags(
        f"{noun} {action}", functools.partial(_act, action, words.split()), summary,
        [(f"{action} a {noun}", f"{example}--lookupd-http-address=127.0.0.1:4161")],
        words=words, flags_anywhere=True)
    flags.add_http_servers()
    flags.group("Options")
    flags.add("yes", BOOL, False, "do not ask")
    flags.unknown = {name: f"--{name} is not a flag here: write {flags.name} {words}"
                     for name in ("topic", "channel")}
    flags.add_common(quiet=True)
    return flags


def _act(action: str, wanted: Sequence[str], parsed: Parsed) -> int:
    if len(parsed.rest) != len(wanted):
        raise FlagError(f"give {' and '.join(wanted)}")
    names = [checked_name(name, noun.lower()) for name, noun in zip(parsed.rest, wanted)]
    topic, channel = names[0], "".join(names[1:])
    what = f"channel {channel} of topic {topic}" if channel else f"topic {topic}"
    with make_cluster(parsed.values) as cluster:
        if not parsed.values["yes"]:
            _ask(action, f"{what}{_where(cluster, action, topic, channel)}")
        failures = _carry_out(cluster, action, topic, channel)
    for failure in failures:
        sys.stderr.write(f"not done: {failure.text()}\n")
    if failures:
        return CommandLineError.status
    print(f"{action}: done: {what}")
    return 0


def _carry_out(cluster: Cluster, action: str, topic: str, channel: str) -> Sequence[ServerFailure]:
    actions = ClusterActions(cluster)
    try:
        if action != "create":
            return actions.change(action, topic, channel)
        failures = actions.create(topic, channel)
        if cluster.has_lookupds and cluster.nodes().nodes:
            failures += actions.create(topic, channel, EVERYWHERE)
        return failures
    except UpstreamError as exc:
        return exc.failures
    except ActionError as exc:
        raise CommandLineError(f"{exc.code}: {exc.hint}") from exc


def _where(cluster: Cluster, action: str, topic: str, channel: str) -> str:
    """Return a text with the number of messages and the nsqds that the action affects."""
    try:
        stats, _ = _read(cluster, cluster.nodes().nodes, topic, channel)
    except UpstreamError:
        return ""  # the action will say it
    depths = {address: depth for address, (found, _) in stats.items()
              for depth in [_depth(found, topic, channel)] if depth is not None}
    shown = ", ".join(stats if action == "create" else depths)
    return f" ({counted(sum(depths.values()), 'message')}) on {shown or 'no nsqd'}"


def _depth(stats: Stats, topic: str, channel: str) -> int | None:
    """Return the number of messages on one nsqd; None if it lacks the topic or channel."""
    found = stats.topic(topic)
    if found is not None and not channel:
        return found.depth + sum(each.depth for each in found.channels)
    one = None if found is None else found.channel(channel)
    return None if one is None else one.depth


def _ask(action: str, what: str) -> None:
    """Ask for confirmation of an action; raise CommandLineError without a yes."""
    if not sys.stdin.isatty():
        if action in _HARMLESS:
            return
        raise FlagError("--yes required: stdin is not a terminal")
    sys.stderr.write(printable(f"{action} {what}? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandLineError("nothing was changed")


class Line(NamedTuple):
    """A topic, or a channel of it, over all nsqds."""

    topic: str
    channel: str  #: empty: the topic itself
    ingress: float | None  #: messages per second; None: not counted
    egress: float | None
    counters: Counters
    nsqds: int


def _topics(parsed: Parsed) -> int:
    values = parsed.values
    # Only a pattern has these characters.
    wanted = [topic if set(topic) & set("*?[") else checked_name(topic, "topic")
              for topic in parsed.rest]
    with make_cluster(values) as cluster:
        found = cluster.nodes()
        before, _ = _read(cluster, found.nodes)
        if values["interval"]:
            time.sleep(values["interval"])
        after, failures = _read(cluster, found.nodes)
    lines = count(before if values["interval"] else {}, after, found.registered, wanted)
    problems = [each.text() for each in (*found.failures, *failures)]
    if values["json"]:
        print(json.dumps({"topics": as_json(lines), "problems": problems}))
    else:
        print(as_table(lines) if lines else "no topics")
        sys.stderr.write("".join(f"! {problem}\n" for problem in problems))
    return CommandLineError.status if problems else 0


_Stats = Mapping[str, tuple[Stats, float]]


def _read(
    cluster: Cluster, nodes: Sequence[Node], topic: str | None = None, channel: str = ""
) -> tuple[_Stats, list[ServerFailure]]:
    def ask(nsqd: NsqdHTTP) -> tuple[Stats, float]:
        return fetch_stats(nsqd, topic, channel or None), time.monotonic()

    answers, failures = cluster.each(nodes, ask)
    return {node.address: answer for node, answer in answers.items()}, failures


def count(
    before: _Stats, after: _Stats, registered: frozenset[str], wanted: Sequence[str] = ()
) -> list[Line]:
    """Return the lines of a table, sorted by name. Pure.

    Args:
        before: an earlier poll; empty: no rates.
        registered: topics that nsqlookupds list, even if no nsqd has them.
        wanted: topics or shell patterns; empty: all.
    """
    first, second = _by_name(before), _by_name(after)
    names = second.keys() | {(topic, "") for topic in registered}
    lines = []
    for topic, channel in sorted(names):
        if wanted and not any(fnmatchcase(topic, pattern) for pattern in wanted):
            continue
        rows = rates(first.get((topic, channel), {}), second.get((topic, channel), {}))
        row = total(rows)
        lines.append(Line(
            topic, channel, row.ingress if before else None,
            row.egress if before and channel else None,
            row.counters if rows else Counters(), len(rows)))
    return lines


def _by_name(stats: _Stats) -> dict[tuple[str, str], dict[str, Answer]]:
    found: dict[tuple[str, str], dict[str, Answer]] = {}
    for address, (answer, at) in stats.items():
        for topic in answer.topics:
            own = Counters(messages=topic.message_count, depth=topic.depth,
                           on_disk=topic.backend_depth, paused=int(topic.paused))
            found.setdefault((topic.name, ""), {})[address] = Answer(own, at)
            for channel in topic.channels:
                found.setdefault((topic.name, channel.name), {})[address] = Answer(
                    Counters.of(channel), at)
    return found


def as_table(lines: Sequence[Line]) -> str:
    rows: list[tuple[str, ...]] = [_HEADING]
    for line in lines:
        seen = line.counters
        numbers = (line.ingress, line.egress, seen.clients if line.channel else None)
        rows.append((
            "" if line.channel else line.topic, line.channel, str(seen.depth),
            *(str(number) if line.channel else "" for number in (seen.in_flight, seen.deferred)),
            *("" if number is None else f"{number:.0f}" for number in numbers),
            "paused" if seen.paused else "" if line.nsqds else "on no nsqd",
        ))
    return "\n".join(map(printable, table(rows, ("TOPIC", "CHANNEL", ""))))


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    topics: list[dict[str, Any]] = []
    for line in lines:
        shown = {"name": line.channel or line.topic, "ingress": line.ingress,
                 "egress": line.egress, **line.counters._asdict(), "nsqds": line.nsqds}
        if line.channel:
            topics[-1]["channels"].append(shown)
        else:
            del shown["egress"]
            topics.append({**shown, "channels": []})
    return topics
