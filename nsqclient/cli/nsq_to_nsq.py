"""``nsqclient nsq_to_nsq``: copy topics to other nsqds, with the flags of the original.

A message is finished only after its destination has stored it, so a crash causes duplicates and no
loss. When no destination accepts a message it is requeued and the consumer backs off.
"""

from __future__ import annotations

import functools
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from nsqclient import (
    BatchHandler, Config, InvalidMessageError, Message, NSQError, PublishRejectedError,
)
from nsqclient.cli.consumers import Consumers
from nsqclient.cli.flags import BOOL, NAME, NAMES, STRING, STRINGS, FlagError, Parsed, choice
from nsqclient.cli.lines import NotAnObject, in_flags, key_of, parse_object
from nsqclient.cli.load_balancing import (
    STRATEGIES, EpsilonGreedy, HostPool, RequestTimes,
)
from nsqclient.cli.to_nsq import make_producers
from nsqclient.cli.tool_flags import (
    COUNT, ToolFlags, add_addresses, read_config, read_consumer_config,
)
from nsqclient.protocol.commands import DeliveredBody
from nsqclient.protocol.partitioned.extensions import RESERVED_PREFIX
from nsqclient.runtime.process_signals import Second, Signals

logger: logging.Logger = logging.getLogger("nsqclient.cli")

PROGRAM = "nsq_to_nsq"

#: Batches at once for each topic: one is filled while another is stored.
_WORKERS = 4
#: Seconds that a message waits for others in its batch.
_MAX_WAIT = 0.01
#: Part of a message's remaining time that its publishing may use up.
_PART = 0.8


MODE = choice(*STRATEGIES, name="string")

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
    flags = ToolFlags(PROGRAM, _run, _SUMMARY, _EXAMPLES)
    flags.group("Messages")
    flags.add_topic(NAMES, "nsq_to_nsq")
    flags.add_in_flight()
    flags.group("Destination")
    add_addresses(flags, "destination-nsqd-tcp-address")
    flags.add("destination-lookupd-http-address", STRINGS, (),
              "HTTP address of an nsqlookupd, <addr>:<port>, instead of nsqds; also for a\n"
              "      partitioned NSQ; may be repeated")
    flags.require("destination-nsqd-tcp-address", "destination-lookupd-http-address")
    flags.add("key-field", STRING, "",
              "for a partitioned NSQ: field of JSON messages whose value is the key")
    flags.need("key-field", "destination-lookupd-http-address")
    flags.add("destination-topic", NAME, "",
              "topic to publish to (default: the topic of each message)")
    flags.add("force", BOOL, False, "copy also to the nsqds and the topic that messages come from")
    flags.add("mode", MODE, "hostpool",
              "how to choose among several destinations: hostpool (connected destinations in"
              " turn), round-robin (all destinations in turn), or epsilon-greedy (mostly the"
              " fastest)")
    flags.add_producer_options()
    flags.group("Filter for JSON objects (other messages are logged and dropped)")
    flags.add("require-json-field", STRING, "", "copy only messages with this field")
    flags.add("require-json-value", STRING, "",
              "copy only messages in which the required field has this value")
    flags.need("require-json-value", "require-json-field")
    flags.add("whitelist-json-field", STRINGS, (), "copy only this field; may be repeated")
    flags.add_sources()
    flags.add_common()
    flags.add("status-every", COUNT, 250,
              "number of messages per destination after which to log times; 0: never")
    return flags


def _run(parsed: Parsed) -> int:
    values = parsed.values
    lookupds = values["destination-lookupd-http-address"]
    config = read_consumer_config(values, PROGRAM)
    producer_config = read_config(values, PROGRAM, "producer-opt", has_secrets=False)
    if not values["force"]:
        _refuse_own_source(values)
    json_filter = JsonFilter(
        values["require-json-field"], values["require-json-value"] or None,
        values["whitelist-json-field"],
    )
    destinations = Destinations(
        values["destination-nsqd-tcp-address"], values["mode"], producer_config,
        values["status-every"], lookupds)
    try:
        with Signals(Second.EXIT) as signals:
            consumers = Consumers(values, config, signals)
            own = {} if values["force"] else places(values["destination-nsqd-tcp-address"])
            for topic in dict.fromkeys(values["topic"]):
                target = values["destination-topic"] or topic
                copier = Copier(
                    target, json_filter, destinations, producer_config, values["key-field"],
                    bool(lookupds), own if target == topic else {},
                    functools.partial(_end_endless, consumers, topic))
                size = max(1, config.max_in_flight // 2)
                consumers.add(topic, values["channel"], BatchHandler(copier, size, _MAX_WAIT),
                              workers=_WORKERS)
            consumers.run()
    finally:
        destinations.close()
    return 0


_ENDLESS = ("the destination %s is where the messages of %s come from: each message would be copied"
            " again without end; give another --destination-topic, or --force")


def _refuse_own_source(values: Mapping[str, Any]) -> None:
    if values["destination-topic"] and values["destination-topic"] not in values["topic"]:
        return
    for kind in ("nsqd-tcp-address", "lookupd-http-address"):
        sources, destinations = places(values[kind]), places(values[f"destination-{kind}"])
        for place in destinations.keys() & sources.keys():
            topic = values["destination-topic"] or values["topic"][0]
            raise FlagError(_ENDLESS % (destinations[place], topic))


def _end_endless(consumers: Consumers, topic: str, address: str) -> None:
    consumers.fail(_ENDLESS % (address, topic))


def places(addresses: Iterable[str]) -> dict[tuple[str, int | None], str]:
    """Resolve addresses: (IP address, port) -> address. Blocks: DNS."""
    found: dict[tuple[str, int | None], str] = {}
    for address in addresses:
        parts = urlsplit(address if "://" in address else f"//{address}")
        try:
            port = parts.port
            for info in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM):
                found[str(info[4][0]), port] = address
        except (OSError, ValueError):
            found[address, None] = address
    return found


class Copier:
    """Publishes batches of messages to one topic, and finishes or requeues each of them.

    Args:
        key_field: field of JSON messages whose value is the key; empty: no keys.
        copies_headers: whether the destination may take headers.
        own: nsqds that messages must not come from; see ``places``.
        on_own: called with the address of such an nsqd.
    """

    def __init__(
        self, topic: str, json_filter: JsonFilter, destinations: Destinations, config: Config,
        key_field: str = "", copies_headers: bool = False,
        own: Mapping[tuple[str, int | None], str] = {},
        on_own: Callable[[str], None] = lambda address: None,
    ) -> None:
        self._own = own
        self._on_own = on_own
        self._is_own: dict[str, bool] = {}  # source address -> result
        self._key_field = key_field
        self._copies_headers = copies_headers
        self._topic = topic
        self._filter = json_filter
        self._destinations = destinations
        self._timeout = config.publish_timeout

    def __call__(self, messages: list[Message]) -> None:
        """Handle one batch. Blocks: until each message is stored or refused."""
        under_way = []
        for message in messages:
            if self._own and self._comes_from_own(message.nsqd_address):
                message.requeue(delay=0, backoff=False)
                continue
            body = self._filtered(message)
            if body is None:
                message.finish()
                continue
            # After its deadline another consumer gets it.
            timeout = max(0.1, min(self._timeout, message.time_left * _PART))
            try:
                wait = self._destinations.publish(
                    self._topic, DeliveredBody(body), timeout, **self._options_of(message))
            except NSQError as exc:
                self._requeue(message, exc)
            else:
                under_way.append((message, wait))
        for message, wait in under_way:
            try:
                wait()
            except NSQError as exc:
                self._requeue(message, exc)
            else:
                message.finish()

    def _comes_from_own(self, address: str) -> bool:
        if address not in self._is_own:
            self._is_own[address] = not self._own.keys().isdisjoint(places([address]))
        if self._is_own[address]:
            self._on_own(address)
        return self._is_own[address]

    def _options_of(self, message: Message) -> dict[str, Any]:
        """Return a message's key and headers, if partitioned. Raises InvalidMessageError."""
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
        logger.error("%r is requeued: %s", message, in_flags(exc, "--key-field"))
        message.requeue(backoff=not is_rejected_message(exc))


class Destinations:
    """All nsqds that messages are copied to. Threads: any.

    In the mode ``hostpool`` one Producer serves all nsqds: it publishes to the connected nsqds in
    turn, and tries another one after a failure. In the other modes each nsqd has its own Producer.
    """

    def __init__(
        self, addresses: Sequence[str], mode: str, config: Config, status_every: int,
        lookupds: Sequence[str] = (),
    ) -> None:
        self._all = make_producers(addresses, lookupds, config, together=mode == "hostpool")
        self._times = RequestTimes(self._all, status_every)
        self._lock = threading.Lock()
        kind = EpsilonGreedy if mode == "epsilon-greedy" else HostPool
        self._strategy = kind(list(self._all), random.Random())  # guarded by _lock

    def order(self) -> list[str]:
        with self._lock:
            return self._strategy.order(time.monotonic())

    def publish(
        self, topic: str, body: bytes, timeout: float, **options: Any
    ) -> Callable[[], None]:
        """Begin to publish to one nsqd, and to a second one if the first fails.

        Returns a function that waits until the message is stored; it raises NSQError otherwise.
        """
        first, *others = self.order()[:2]
        began = time.monotonic()

        def send(name: str, seconds: float) -> Future[Any]:
            return self._all[name].publish_async(topic, body, timeout=seconds, **options)

        # The second attempt needs time too.
        future = send(first, timeout / 2 if others else timeout)

        def wait() -> None:
            try:
                self._wait(first, future, began)
            except NSQError as exc:
                if not others:
                    raise
                logger.warning("%s: %s; trying another destination", first, exc)
                again = send(others[0], max(0.1, began + timeout - time.monotonic()))
                self._wait(others[0], again, began)

        return wait

    def _wait(self, name: str, future: Future[Any], began: float) -> None:
        try:
            future.result()
        except NSQError as exc:
            if not is_rejected_message(exc):
                self.report(name, False, 0.0)
            raise
        self.report(name, True, time.monotonic() - began)

    def report(self, name: str, ok: bool, seconds: float) -> None:
        with self._lock:
            self._strategy.report(name, ok, seconds, time.monotonic())
        if ok:
            self._times.add(name, seconds)

    def close(self) -> None:
        for producer in self._all.values():
            producer.close()


def is_rejected_message(error: NSQError) -> bool:
    """True if the destination rejects this message, but may accept others."""
    return isinstance(error, InvalidMessageError) or (
        isinstance(error, PublishRejectedError) and not error.retryable)


class JsonFilter:
    """Decides about one body at a time. Immutable.

    Args:
        field, value: objects must have the field, with this value; empty, None: any.
        whitelist: fields that pass; empty: the body is unchanged.
    """

    def __init__(self, field: str, value: str | None, whitelist: Collection[str]) -> None:
        self._field = field
        self._value = value
        self._whitelist = sorted(set(whitelist))
        self._parses = bool(field or whitelist)

    def __call__(self, body: bytes) -> bytes | None:
        """Return the body to pass on, or None. Raises NotAnObject."""
        if not self._parses:
            return body
        fields = parse_object(body)
        if self._field:
            if self._field not in fields:
                return None
            if self._value is not None and not matches(fields[self._field], self._value):
                return None
        if not self._whitelist:
            return body
        passed = {name: fields[name] for name in self._whitelist if name in fields}
        text = json.dumps(passed, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def matches(value: Any, wanted: str) -> bool:
    """Compare the value of a field with text, as the original does.

    Strings must be identical and numbers equal; nothing else matches. Whole numbers are compared
    exactly.
    """
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        if isinstance(value, int) and wanted.lstrip("+-").isdecimal():
            return value == int(wanted)
        return float(value) == float(wanted)
    except (ValueError, OverflowError):
        return False
