"""``nsqclient nsq_to_nsq``: copy topics to other nsqds, with the flags of the original.

A message is finished only after its destination has stored it, so a crash at any moment causes
duplicates and no loss. When no destination accepts a message it is requeued and the consumer backs
off; messages that a filter drops are finished.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from nsqclient import (
    BatchHandler, Config, InvalidMessageError, Message, NSQError, Producer, PublishRejectedError,
)
from nsqclient.cli.consumers import Consumers
from nsqclient.cli.flags import INT, STRING, STRINGS, CommandLineError, FlagError, Parsed, choice
from nsqclient.cli.json_filter import JsonFilter, NotAnObject, in_flags, key_of
from nsqclient.cli.load_balancing import EpsilonGreedy, HostPool, RequestTimes
from nsqclient.cli.signals import Signals
from nsqclient.cli.tool_flags import (
    ToolFlags, check_in_flight, check_name, check_sources, check_topics, read_config,
    turn_off_negative,
)
from nsqclient.protocol.extensions import RESERVED_PREFIX

logger: logging.Logger = logging.getLogger("nsqclient.cli")

PROGRAM = "nsq_to_nsq"

MODES = ("hostpool", "round-robin", "epsilon-greedy")
#: Batches that are under way at once for each topic: one is filled while another is stored.
_WORKERS = 4
#: Seconds that a message waits for others in its batch.
_MAX_WAIT = 0.01
#: Part of the time left for a message that its publishing may use up.
_PART = 0.8


MODE = choice(*MODES, name="string")

_SUMMARY = """\
Consumes topics and publishes each message to other nsqds. A message is finished only after its
destination has stored it: it may be duplicated, but not lost."""

_EXAMPLES = [
    ("copy a topic to another cluster",
     "nsqclient nsq_to_nsq --lookupd-http-address=lookup:4161 --topic=orders \\\n"
     "      --destination-nsqd-tcp-address=there:4150"),
    ("copy two fields of paid orders to another topic",
     "nsqclient nsq_to_nsq ... --topic=orders --destination-topic=paid \\\n"
     "      --require-json-field=state --require-json-value=paid \\\n"
     "      --whitelist-json-field=id --whitelist-json-field=total"),
]


def build_command() -> ToolFlags:
    """The command and its flags."""
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("Messages")
    flags.add("topic", STRINGS, (), "NSQ topic; required, may be repeated")
    flags.add("channel", STRING, "nsq_to_nsq", "NSQ channel")
    flags.add("max-in-flight", INT, 200, "maximum number of messages in flight")
    flags.group("Destination")
    flags.add("destination-nsqd-tcp-address", STRINGS, (),
              "TCP address of an nsqd, <addr>:<port>; may be repeated")
    flags.add("destination-lookupd-http-address", STRINGS, (),
              "HTTP address of an nsqlookupd, <addr>:<port>, instead of nsqds; also for a\n"
              "      partitioned NSQ; may be repeated")
    flags.add("key-field", STRING, "",
              "for a partitioned NSQ: field of JSON messages whose value is the key")
    flags.add("destination-topic", STRING, "",
              "topic to publish to (default: the topic of each message)")
    flags.add("mode", MODE, "hostpool",
              "how to choose among several destinations: hostpool (connected destinations in"
              " turn), round-robin (all destinations in turn), or epsilon-greedy (mostly the"
              " fastest)")
    flags.add_producer_options()
    flags.group("Filter for JSON objects (other messages are logged and dropped)")
    flags.add("require-json-field", STRING, "", "copy only messages with this field")
    flags.add("require-json-value", STRING, "",
              "copy only messages in which the required field has this value")
    flags.add("whitelist-json-field", STRINGS, (), "copy only this field; may be repeated")
    flags.add_sources()
    flags.add_common()
    flags.add("status-every", INT, 250,
              "number of messages per destination after which to log times; 0: never")
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    topics = check_topics(values["topic"])
    channel = check_name(values["channel"], "channel")
    if values["destination-topic"]:
        check_name(values["destination-topic"], "destination-topic")
    check_sources(values)
    addresses = list(dict.fromkeys(values["destination-nsqd-tcp-address"]))
    lookupds = values["destination-lookupd-http-address"]
    if not addresses and not lookupds:
        raise FlagError("--destination-nsqd-tcp-address required, or"
                        " --destination-lookupd-http-address")
    if addresses and lookupds:
        raise CommandLineError("give --destination-nsqd-tcp-address or"
                               " --destination-lookupd-http-address, not both")
    if values["key-field"] and not lookupds:
        raise CommandLineError("--key-field needs --destination-lookupd-http-address")
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
        addresses, values["mode"], producer_config, values["status-every"], lookupds)
    try:
        with Signals() as signals:
            consumers = Consumers(values, config, signals)
            for topic in topics:
                copier = Copier(
                    values["destination-topic"] or topic, json_filter, destinations,
                    producer_config, values["key-field"], bool(lookupds))
                size = max(1, config.max_in_flight // 2)
                consumers.add(
                    topic, channel, BatchHandler(copier, size, _MAX_WAIT), workers=_WORKERS)
            consumers.run()
    finally:
        destinations.close()
    return 0


class Copier:
    """Publishes batches of messages to one topic, and finishes or requeues each of them.

    Args:
        key_field: of JSON messages; its value is the key. Empty: messages have none.
        copies_headers: whether the destination may take headers.

    Threads: any number of batches at once.
    """

    def __init__(
        self, topic: str, json_filter: JsonFilter, destinations: Destinations, config: Config,
        key_field: str = "", copies_headers: bool = False,
    ) -> None:
        self._key_field = key_field
        self._copies_headers = copies_headers
        self._topic = topic
        self._filter = json_filter
        self._destinations = destinations
        self._timeout = config.publish_timeout

    def __call__(self, messages: list[Message]) -> None:
        """Handle one batch. Blocks: until each message is stored, or no destination accepts it."""
        under_way = []
        for message in messages:
            body = self._filtered(message)
            if body is None:
                message.finish()
                continue
            # After its deadline another consumer gets it.
            timeout = max(0.1, min(self._timeout, message.time_left * _PART))
            try:
                attempt = CopyAttempt(
                    self._destinations, self._topic, body, timeout, **self._options_of(message))
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

    def _options_of(self, message: Message) -> dict[str, Any]:
        """Return its key and headers, for a partitioned destination.

        Raises:
            InvalidMessageError: it has no key, and needs one.
        """
        options: dict[str, Any] = {}
        if self._key_field:
            options["key"] = key_of(message.body, self._key_field)
        if self._copies_headers and message.headers:
            options["headers"] = {name: value for name, value in message.headers.items()
                                  if not name.startswith(RESERVED_PREFIX)}
        return options

    def _filtered(self, message: Message) -> bytes | None:
        try:
            return self._filter(message.body)
        except NotAnObject as exc:
            logger.error("%r is dropped: %s: %r", message, exc, message.body[:200])
            return None

    def _requeue(self, message: Message, exc: NSQError) -> None:
        """Requeue it; a message that is always rejected causes no backoff."""
        logger.error("%r is requeued: %s", message, in_flags(exc, "--key-field"))
        message.requeue(backoff=not is_rejected_message(exc))


class Destinations:
    """All nsqds that messages are copied to.

    In the mode ``hostpool`` one Producer has all of them: it takes those that are connected in
    turn, and publishes a message to another one when one fails. In the other modes each nsqd has a
    Producer of its own.

    Threads: any.
    """

    def __init__(
        self, addresses: Sequence[str], mode: str, config: Config, status_every: int,
        lookupds: Sequence[str] = (),
    ) -> None:
        groups = [addresses] if mode == "hostpool" else [[address] for address in addresses]
        if lookupds:
            self._all = {", ".join(lookupds): Producer(
                lookupd_http_addresses=lookupds, config=config)}
        else:
            self._all = {", ".join(group): Producer(group, config=config) for group in groups}
        self._times = RequestTimes(self._all, status_every)
        self._lock = threading.Lock()
        kind = EpsilonGreedy if mode == "epsilon-greedy" else HostPool
        self._strategy = kind(list(self._all), random.Random())  # guarded by _lock

    def order(self) -> list[str]:
        """Return their names, in the order in which to try them."""
        with self._lock:
            return self._strategy.order(time.monotonic())

    def publish(self, name: str, topic: str, body: bytes, **options: Any) -> Future[Any]:
        """Publish to one of them; the options are those of ``publish_async``."""
        return self._all[name].publish_async(topic, body, **options)

    def report(self, name: str, ok: bool, seconds: float) -> None:
        """Report the outcome of a publish, and how long it took."""
        with self._lock:
            self._strategy.report(name, ok, seconds, time.monotonic())
        if ok:
            self._times.add(name, seconds)

    def close(self) -> None:
        """Close all connections."""
        for producer in self._all.values():
            producer.close()


def is_rejected_message(error: NSQError) -> bool:
    """Return whether the destination always rejects this message, and may accept others."""
    return isinstance(error, InvalidMessageError) or (
        isinstance(error, PublishRejectedError) and not error.retryable)


class CopyAttempt:
    """Publishes one message to a destination, and to a second one if the first fails."""

    def __init__(
        self, destinations: Destinations, topic: str, body: bytes, timeout: float,
        **options: Any,
    ) -> None:
        self._destinations = destinations
        self._arguments = topic, body
        self._options = options
        self._began = time.monotonic()
        self._until = self._began + timeout
        self._to, *self._others = destinations.order()[:2]
        # The second attempt needs time too.
        self._future = self._publish(timeout / 2 if self._others else timeout)

    def result(self) -> None:
        """Wait until it is stored.

        Raises:
            NSQError: it is not, or the outcome is unknown.
        """
        try:
            self._wait(self._future)
        except NSQError as exc:
            if not self._others:
                raise
            logger.warning("%s: %s; trying another destination", self._to, exc)
            self._to = self._others.pop()
            self._wait(self._publish(max(0.1, self._until - time.monotonic())))

    def _wait(self, future: Future[Any]) -> None:
        try:
            future.result()
        except NSQError as exc:
            if not is_rejected_message(exc):
                self._destinations.report(self._to, False, 0.0)
            raise
        self._destinations.report(self._to, True, time.monotonic() - self._began)

    def _publish(self, timeout: float) -> Future[Any]:
        return self._destinations.publish(
            self._to, *self._arguments, timeout=timeout, **self._options)
