"""``nsqclient nsq_to_nsq``: copy topics to other nsqds, with the flags of the original.

A message is finished only after its destination has stored it, so a crash at any moment makes
duplicates and loses nothing. When no destination takes a message it is requeued and the consumer
backs off; messages that a filter drops are finished and never slow anything down.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nsqclient import BatchHandler, Config, Message, NSQError
from nsqclient.cli.consumers import Consumers
from nsqclient.cli.destinations import MODES, Attempt, Destinations, is_about_the_message
from nsqclient.cli.goflags import INT, STRING, STRINGS, CommandLineError, Kind, Parsed
from nsqclient.cli.json_filter import JsonFilter, NotAnObject
from nsqclient.cli.signals import Signals
from nsqclient.cli.tools import (
    ToolFlags, check_in_flight, check_name, check_sources, check_topics, read_config, run,
    turn_off_negative,
)

logger = logging.getLogger("nsqclient.cli")

PROGRAM = "nsq_to_nsq"

#: Batches that are under way at once for each topic: one is filled while another is stored.
_WORKERS = 4
#: Seconds that a message waits for company.
_MAX_WAIT = 0.01
#: Part of the time left for a message that its publishing may use up.
_PART = 0.8


def _parse_mode(text: str) -> str:
    if text not in MODES:
        raise ValueError(f"use {', '.join(MODES)}")
    return text


MODE = Kind("string", _parse_mode, lambda value: f'"{value}"')

_SUMMARY = """\
Consumes topics and publishes each message to other nsqds. A message is finished only after its
destination has stored it: duplicates are possible, losses are not."""

_EXAMPLES = [
    ("copy a topic to another cluster",
     "nsqclient nsq_to_nsq --lookupd-http-address=lookup:4161 --topic=orders \\\n"
     "      --destination-nsqd-tcp-address=there:4150"),
    ("only paid orders, only two fields, under another name",
     "nsqclient nsq_to_nsq ... --topic=orders --destination-topic=paid \\\n"
     "      --require-json-field=state --require-json-value=paid \\\n"
     "      --whitelist-json-field=id --whitelist-json-field=total"),
]


def build_flags() -> ToolFlags:
    """The flags of nsq_to_nsq."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    flags.group("What to copy")
    flags.add("topic", STRINGS, (), "NSQ topic; required, may be repeated")
    flags.add("channel", STRING, "nsq_to_nsq", "NSQ channel")
    flags.add("max-in-flight", INT, 200, "max number of messages to allow in flight")
    flags.group("Where to")
    flags.add("destination-nsqd-tcp-address", STRINGS, (),
              "nsqd <addr>:<port>; required, may be repeated")
    flags.add("destination-topic", STRING, "",
              "topic for all messages (default: the one they come from)")
    flags.add("mode", MODE, "hostpool",
              "which nsqd gets a message: hostpool (in turn, those that are alive), round-robin\n"
              "      (in turn), epsilon-greedy (mostly the fastest)")
    flags.add_producer_options()
    flags.group("Filter for JSON objects (other messages are dropped then, and logged)")
    flags.add("require-json-field", STRING, "", "only messages that have this field")
    flags.add("require-json-value", STRING, "", "only those where it has this value")
    flags.add("whitelist-json-field", STRINGS, (), "pass this field only; may be repeated")
    flags.add_sources()
    flags.add_common()
    flags.add("status-every", INT, 250,
              "log after so many messages (per destination); 0: never")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Copy until a signal; return the exit status."""
    return run(build_flags(), argv, _run)


def _run(parsed: Parsed) -> int:
    values = parsed.values
    topics = check_topics(values["topic"])
    channel = check_name(values["channel"], "channel")
    if values["destination-topic"]:
        check_name(values["destination-topic"], "destination-topic")
    check_sources(values)
    addresses = list(dict.fromkeys(values["destination-nsqd-tcp-address"]))
    if not addresses:
        raise CommandLineError("--destination-nsqd-tcp-address required")
    check_in_flight(values)
    turn_off_negative(values, "status-every")
    if values["require-json-value"] and not values["require-json-field"]:
        raise CommandLineError("--require-json-value needs --require-json-field")
    config = read_config(values, PROGRAM, "consumer-opt").replace(
        max_in_flight=values["max-in-flight"])
    producer_config = read_config(values, PROGRAM, "producer-opt", has_secrets=False)
    json_filter = JsonFilter(
        values["require-json-field"], values["require-json-value"] or None,
        values["whitelist-json-field"],
    )
    destinations = Destinations(
        addresses, values["mode"], producer_config, values["status-every"])
    try:
        with Signals() as signals:
            consumers = Consumers(values, config, signals)
            for topic in topics:
                copier = Copier(
                    values["destination-topic"] or topic, json_filter, destinations,
                    producer_config)
                size = max(1, config.max_in_flight // 2)
                consumers.add(
                    topic, channel, BatchHandler(copier, size, _MAX_WAIT), workers=_WORKERS)
            consumers.run()
    finally:
        destinations.close()
    return 0


class Copier:
    """Publishes batches of messages to one topic, and answers each of them.

    Threads: any number of batches at once.
    """

    def __init__(
        self, topic: str, json_filter: JsonFilter, destinations: Destinations, config: Config
    ) -> None:
        self._topic = topic
        self._filter = json_filter
        self._destinations = destinations
        self._timeout = config.publish_timeout

    def __call__(self, messages: list[Message]) -> None:
        """Handle one batch. Blocks: until each message is stored, or no destination took it."""
        under_way = []
        for message in messages:
            body = self._filtered(message)
            if body is None:
                message.finish()
                continue
            # After its deadline somebody else gets it.
            timeout = max(0.1, min(self._timeout, message.time_left * _PART))
            try:
                attempt = Attempt(self._destinations, self._topic, body, timeout)
            except NSQError as exc:
                self._requeue(message, exc)
            else:
                under_way.append((message, attempt))
        for message, attempt in under_way:
            try:
                attempt.result()
            except NSQError as exc:
                self._requeue(message, exc)
            else:
                message.finish()

    def _filtered(self, message: Message) -> bytes | None:
        try:
            return self._filter(message.body)
        except NotAnObject as exc:
            logger.error("%r is dropped: %s: %r", message, exc, message.body[:200])
            return None

    def _requeue(self, message: Message, exc: NSQError) -> None:
        """Have it again later; what no destination will ever take slows nothing else down."""
        logger.error("%r is requeued: %s", message, exc)
        message.requeue(backoff=not is_about_the_message(exc))
