"""``NsqlookupdHTTP``: the HTTP API of one nsqlookupd. Source: nsqlookupd 1.3.0."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from nsqclient.errors import other_lookup_error
from nsqclient.http.models import Lookup, LookupdInfo, Node, Producer
from nsqclient.http.session import HTTPClient, Server
from nsqclient.http.urls import lookup_url
from nsqclient.protocol.names import check_topic
from nsqclient.protocol.peer_json import InvalidField, JsonReader
from nsqclient.runtime.log_lines import LineLimit

logger: logging.Logger = logging.getLogger("nsqclient.http")
_unusable_lines = LineLimit()

T = TypeVar("T")

#: Fields of a stock nsqlookupd's answer to ``/lookup``. Other fields change their meaning.
_LOOKUP_FIELDS = {"channels", "producers"}


class NsqlookupdHTTP(HTTPClient):
    """The HTTP API of one nsqlookupd.

    Args:
        address: ``host:port`` or a URL. A path in the URL replaces ``/lookup``, as with
            go-nsq: the other endpoints are beside it.
        config, connect_timeout, timeout, max_answer_size, headers: see
            :class:`~nsqclient.http.session.HTTPClient`.
        bearer_token: sent as ``Authorization: Bearer``. None: the config's ``auth_secret``, if
            ``skip_lookupd_authorization`` (go-nsq's inverted name) is true; empty: nothing.

    Threads: any. Raises ConfigError for an invalid address or timeout. Every method may
    raise an NSQHTTPError: see the base class.
    """

    _server = Server("nsqlookupd", 4160, 4161, lookup_url, takes_secret=True)

    def info(self) -> LookupdInfo:
        return self._ask("info", lambda fields: fields.build(LookupdInfo))

    def lookup(self, topic: str) -> Lookup:
        """Ask which nsqds have a topic, and for its channels.

        Raises:
            NSQHTTPStatusError: 404 TOPIC_NOT_FOUND: no nsqd has registered it.
            DiscoveryError: the nsqlookupd belongs to another kind of NSQ.
        """
        data = self._ask_json("lookup", {"topic": check_topic(topic)})
        if isinstance(data, dict) and "channels" in data and not data.keys() <= _LOOKUP_FIELDS:
            raise other_lookup_error(self.address)
        return self._read("lookup", data, self._read_lookup)

    @staticmethod
    def _read_lookup(data: Any) -> Lookup:
        fields = _with_producers(data)
        return Lookup(fields.texts("channels"), read_readable(fields, Producer.read))

    def topics(self) -> tuple[str, ...]:
        return self._ask("topics", lambda fields: fields.texts("topics"))

    def channels(self, topic: str) -> tuple[str, ...]:
        """Ask for the channels of a topic; none for an unknown topic."""
        return self._ask(
            "channels", lambda fields: fields.texts("channels"), {"topic": check_topic(topic)}
        )

    def nodes(self) -> tuple[Node, ...]:
        """Ask for every nsqd that is registered."""
        return self._read("nodes", self._ask_json("nodes"),
                          lambda data: read_readable(_with_producers(data), Node.read))

    def create_topic(self, topic: str) -> None:
        """Register a topic that no nsqd has yet."""
        self._change("topic/create", topic)

    def delete_topic(self, topic: str) -> None:
        """Drop the registrations of a topic and its channels; the nsqds keep theirs."""
        self._change("topic/delete", topic)

    def create_channel(self, topic: str, channel: str) -> None:
        """Register a channel; each nsqd that makes the topic makes the channel with it."""
        self._change("channel/create", topic, channel)

    def delete_channel(self, topic: str, channel: str) -> None:
        """Drop the registration of a channel; 404 CHANNEL_NOT_FOUND if there is none."""
        self._change("channel/delete", topic, channel)

    def tombstone_topic(self, topic: str, node: str) -> None:
        """Hide one nsqd from lookups of a topic for a while (``--tombstone-lifetime``).

        Args:
            node: its ``broadcast_address:http_port`` (:attr:`Producer.http_address`).
        """
        self._send("POST", "topic/tombstone", {"topic": check_topic(topic), "node": node})


def _with_producers(data: Any) -> JsonReader:
    # Without this check the JSON of something else would read as "no nsqd at all".
    if not (isinstance(data, dict) and isinstance(data.get("producers"), list)):
        raise InvalidField(f"its answer has no list of producers: {data!r:.200}")
    return JsonReader(data, "its answer")


def read_readable(fields: JsonReader, read: Callable[[JsonReader], T]) -> tuple[T, ...]:
    """Read the producers without invalid entries."""
    found = []
    for producer in fields.items("producers"):
        try:
            found.append(read(JsonReader(producer, "producer")))
        except InvalidField as exc:
            warn_of("producer: %s", exc)
    return tuple(found)


def warn_of(what: str, *values: object) -> None:
    """Log an invalid part of an answer."""
    logger.log(
        _unusable_lines.level(logging.WARNING), "an nsqlookupd lists an unusable " + what, *values)
