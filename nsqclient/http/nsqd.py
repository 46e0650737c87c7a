"""``NsqdHTTP``: the HTTP API of one nsqd. Source: nsqd 1.3.0."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nsqclient.config import Config
from nsqclient.errors import NSQHTTPResponseError
from nsqclient.http.models import NsqdInfo, Stats
from nsqclient.http.session import HTTPClient, Server
from nsqclient.http.urls import nsqd_url
from nsqclient.protocol.commands import check_body, check_delay, check_mpub, pack_bodies
from nsqclient.protocol.names import check_channel, check_topic
from nsqclient.protocol.peer_json import InvalidField, InvalidJson, JsonLimitError, read_json
from nsqclient.runtime.addresses import format_address, parse_address
from nsqclient.runtime.deadline import Duration, to_seconds

#: Difference between the TCP port of an nsqd and its usual HTTP port.
_TO_HTTP_PORT = 1


def find_http_address(nsqd: str, config: Config, timeout: float) -> str:
    """Return the address of an nsqd's HTTP API, if it is at the port after its TCP port.

    Args:
        timeout: seconds to connect, and for the answer.

    Raises:
        NSQHTTPError: no server, or another one, answers there.
    """
    host, port = parse_address(nsqd)
    beside = format_address(host, min(port + _TO_HTTP_PORT, 65535))
    with NsqdHTTP(beside, config, connect_timeout=timeout, timeout=timeout) as client:
        found = client.info().tcp_port
    if found != port:
        raise NSQHTTPResponseError(
            nsqd_url(beside, "info"), f"this nsqd has the TCP port {found}, not {port}")
    return beside


class NsqdHTTP(HTTPClient):
    """The HTTP API of one nsqd.

    For publishing at a high rate use a :class:`~nsqclient.Producer`: it is faster, fails over, and
    reports outcomes.

    Args:
        address: ``host:port`` or a URL; a path in it is a prefix.
        config, connect_timeout, timeout, max_answer_size, headers: see
            :class:`~nsqclient.http.session.HTTPClient`. ``pub`` and ``mpub`` also use the config's
            ``nsqd_max_msg_size``, ``nsqd_max_body_size`` and ``nsqd_max_req_timeout``.
        bearer_token: sent as ``Authorization: Bearer``, for a proxy before nsqd.

    Threads: any. Raises ConfigError for an invalid address or timeout. Every method may
    raise an NSQHTTPError: see the base class.
    """

    _server = Server("nsqd", 4150, 4151, nsqd_url)

    # -- queries

    def info(self) -> NsqdInfo:
        """Ask for version, addresses and limits."""
        return self._ask("info", lambda fields: fields.build(NsqdInfo))

    def stats(
        self,
        topic: str | None = None,
        channel: str | None = None,
        *,
        include_clients: bool = True,
    ) -> Stats:
        """Ask for the counters of all topics, or of one, or of one channel.

        Args:
            include_clients: list connections; costs nsqd time if there are many.
        """
        return self._ask("stats", Stats.read, _json_stats(topic, channel, include_clients))

    def stats_json(
        self,
        topic: str | None = None,
        channel: str | None = None,
        *,
        include_clients: bool = True,
    ) -> dict[str, Any]:
        """Ask as :meth:`stats` does, and return the JSON object of nsqd.

        ``topics`` is a list; nothing else is checked.
        """
        data = self._ask_json("stats", _json_stats(topic, channel, include_clients))
        return self._read("stats", data, _with_topics)

    def stats_text(self, topic: str | None = None, channel: str | None = None) -> str:
        """Ask for the counters as text, with nsqd's memory."""
        return self._send("GET", "stats", _selection(topic, channel)).decode("utf-8", "replace")

    # -- publishing

    def pub(self, topic: str, body: bytes, *, defer: Duration | None = None) -> None:
        """Publish one message, delivered after ``defer``.

        Raises:
            InvalidTopicError, InvalidMessageError: nsqd would refuse it; nothing was sent.
            NSQHTTPStatusError: not stored.
            NSQHTTPTransportError: the outcome is unknown. nsqd may close the connection in the
                middle of a body that is larger than its --max-msg-size.
        """
        body = check_body(body, self._config.nsqd_max_msg_size)
        params = {"topic": check_topic(topic)}
        if defer is not None:
            delay_ms = round(to_seconds(defer, "defer") * 1000)
            check_delay(delay_ms, round(self._config.nsqd_max_req_timeout * 1000))
            params["defer"] = str(delay_ms)
        self._send("POST", "pub", params, body)

    def mpub(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Publish several messages, all or none.

        Raises:
            As ``pub``; InvalidMessageError also for none, or too much at once.
        """
        config = self._config
        checked = check_mpub(bodies, config.nsqd_max_msg_size, config.nsqd_max_body_size)
        params = {"topic": check_topic(topic), "binary": "true"}
        self._send("POST", "mpub", params, pack_bodies(checked, b""))

    # -- topics and channels

    def create_topic(self, topic: str) -> None:
        self._change("topic/create", topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its channels and messages; its consumers are disconnected.

        Raises:
            NSQHTTPStatusError: 404 TOPIC_NOT_FOUND, as with the other methods on topics.
        """
        self._change("topic/delete", topic)

    def empty_topic(self, topic: str) -> None:
        """Drop the messages that no channel has received yet."""
        self._change("topic/empty", topic)

    def pause_topic(self, topic: str) -> None:
        """Stop the flow of a topic's messages to its channels."""
        self._change("topic/pause", topic)

    def unpause_topic(self, topic: str) -> None:
        self._change("topic/unpause", topic)

    def create_channel(self, topic: str, channel: str, query: Mapping[str, str] = {}) -> None:
        """Create a channel of a topic that exists.

        Args:
            query: further query arguments, as with the other methods on channels.

        Raises:
            NSQHTTPStatusError: 404 TOPIC_NOT_FOUND, and with the other methods on channels also
                CHANNEL_NOT_FOUND.
        """
        self._change("channel/create", topic, channel, query)

    def delete_channel(self, topic: str, channel: str, query: Mapping[str, str] = {}) -> None:
        """Delete a channel with its messages; its consumers are disconnected."""
        self._change("channel/delete", topic, channel, query)

    def empty_channel(self, topic: str, channel: str, query: Mapping[str, str] = {}) -> None:
        """Drop a channel's messages, including messages in flight."""
        self._change("channel/empty", topic, channel, query)

    def pause_channel(self, topic: str, channel: str, query: Mapping[str, str] = {}) -> None:
        """Stop the delivery of a channel's messages."""
        self._change("channel/pause", topic, channel, query)

    def unpause_channel(self, topic: str, channel: str, query: Mapping[str, str] = {}) -> None:
        self._change("channel/unpause", topic, channel, query)

    # -- nsqd's own options

    def get_option(self, name: str) -> Any:
        """Ask for one of nsqd's options: flag names with underscores, durations in nanoseconds."""
        answer = self._send("GET", f"config/{name}")
        try:
            return read_json(answer)
        except JsonLimitError as exc:
            raise self._unusable(f"config/{name}", str(exc)) from exc
        except InvalidJson:
            return answer.decode("utf-8", "replace")  # strings come without quotes

    def set_lookupd_tcp_addresses(self, addresses: Iterable[str]) -> None:
        """Set the nsqlookupds where nsqd registers, until it restarts."""
        body = json.dumps(list(addresses)).encode()
        self._send("PUT", "config/nsqlookupd_tcp_addresses", None, body)

    def set_log_level(self, level: str) -> None:
        """Set the log level: debug, info, warn, error or fatal."""
        self._send("PUT", "config/log_level", None, level.encode())


def _json_stats(
    topic: str | None, channel: str | None, include_clients: bool
) -> dict[str, str]:
    # To count its memory stops nsqd for a moment.
    return {"format": "json", "include_clients": str(include_clients).lower(),
            "include_mem": "false", **_selection(topic, channel)}


def _selection(topic: str | None, channel: str | None) -> dict[str, str]:
    params = {}
    if topic is not None:
        params["topic"] = check_topic(topic)
    if channel is not None:
        params["channel"] = check_channel(channel)
    return params


def _with_topics(data: object) -> dict[str, Any]:
    """Return ``/stats`` with a list of topics; nsqd sends null for an empty list."""
    topics = (data.get("topics") or []) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(topics, list):
        raise InvalidField(f"no JSON object with a list of topics: {data!r:.200}")
    return {**data, "topics": topics}
