"""All nsqlookupds of one nsqd: told of every change, asked for a new topic's channels."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Callable, Iterable
from urllib.parse import quote

from nsqclient.devserver.lookupd_peer import (
    IO_TIMEOUT,
    PING_INTERVAL,
    Change,
    LookupdPeer,
    Registrations,
)
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.protocol import peer_json
from nsqclient.protocol.lookupd import Identity
from nsqclient.protocol.names import is_ephemeral, is_valid_name
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import parse_address

logger = logging.getLogger("nsqclient.devserver")

#: Seconds granted to a nsqlookupd's answer to /channels: nsqd's default for its HTTP client.
HTTP_TIMEOUT = 5.0
#: More channels than fit in here, no topic has. Bytes.
_MAX_ANSWER = 16 * 1024 * 1024


class LookupdPeers:
    """The nsqlookupds that an nsqd registers with.

    Life: created, :meth:`start`, :meth:`stop`.

    Args:
        addresses: TCP addresses, ``host:port``; the same one twice counts once.
        identity: called for each connection: who this nsqd is.
        registrations: called for each connection: every (topic, channel), and (topic, None) for
            a topic without channels. Runs in a thread of its own and may take nsqd's lock.
        ping_interval, timeout: as in LookupdPeer.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        identity: Callable[[], Identity],
        registrations: Registrations,
        *,
        ping_interval: float = PING_INTERVAL,
        timeout: float = IO_TIMEOUT,
    ) -> None:
        self._identity = identity
        self._registrations = registrations
        self._ping_interval = ping_interval
        self._timeout = timeout
        self._lock = threading.Lock()
        self._peers: dict[str, LookupdPeer] = {}  # guarded by _lock
        self._is_running = False  # guarded by _lock
        for address in addresses:
            self._peers[address] = self._make(address)

    @property
    def addresses(self) -> list[str]:
        """The TCP addresses, in the order given."""
        with self._lock:
            return list(self._peers)

    def start(self) -> None:
        """Register with all of them.

        Blocks: until each was tried once, so that a topic made next finds its channels; at most
        a few times ``timeout`` where one does not answer.
        """
        with self._lock:
            self._is_running = True
            peers = list(self._peers.values())
        self._start(peers)

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close all connections, which unregisters this nsqd. The caller holds no lock that
        ``registrations`` takes.

        Blocks: until their threads have ended, or the deadline.
        """
        with self._lock:
            self._is_running = False
            peers = list(self._peers.values())
        for peer in peers:
            peer.stop(deadline)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Go on with these nsqlookupds: new ones are registered with, missing ones left.

        Blocks: as :meth:`start` and :meth:`stop`, for those that come and go.
        """
        wanted = list(dict.fromkeys(addresses))
        with self._lock:
            old = self._peers
            self._peers = {
                address: old[address] if address in old else self._make(address)
                for address in wanted
            }
            gone = [peer for address, peer in old.items() if address not in self._peers]
            new = [peer for address, peer in self._peers.items() if address not in old]
            is_running = self._is_running
        if is_running:
            for peer in gone:
                peer.stop()
            self._start(new)

    def notify(self, created: bool, topic: str, channel: str | None) -> None:
        """Tell all of them of a topic or channel made or lost; returns at once. Any thread."""
        change = Change(created, topic, channel)
        with self._lock:
            if not self._is_running:
                return
            peers = list(self._peers.values())
        for peer in peers:
            peer.notify(change)

    def channels_of(self, topic: str) -> list[str]:
        """The channels that any nsqlookupd knows for a topic, ephemeral ones left out.

        Call it when a topic was made, with no lock held, and create these channels before a
        message flows: each then gets every message, although its consumers come later.

        Blocks: up to HTTP_TIMEOUT for each nsqlookupd that does not answer.
        """
        with self._lock:
            peers = list(self._peers.values()) if self._is_running else []
        asked = [peer.http_address for peer in peers if peer.http_address is not None]
        if peers and not asked:
            logger.error(
                "no available nsqlookupd to query for channels to pre-create for topic %s", topic
            )
        found: dict[str, None] = {}
        for address in asked:
            try:
                names = ask_channels(address, topic)
            except (OSError, ValueError, http.client.HTTPException) as exc:
                logger.warning(
                    "failed to query nsqlookupd %s for channels to pre-create for topic %s - %s",
                    printable(address), topic, printable(str(exc), LONGEST_TEXT),
                )
                continue
            found |= dict.fromkeys(name for name in names if not is_ephemeral(name))
        return list(found)

    def _make(self, address: str) -> LookupdPeer:
        return LookupdPeer(
            address,
            self._identity,
            self._registrations,
            ping_interval=self._ping_interval,
            timeout=self._timeout,
        )

    def _start(self, peers: list[LookupdPeer]) -> None:
        for peer in peers:
            peer.start()
        deadline = Deadline(3 * self._timeout)  # dial, identify, register
        for peer in peers:
            peer.wait_until_tried(deadline)


def ask_channels(http_address: str, topic: str, timeout: float = HTTP_TIMEOUT) -> list[str]:
    """Ask one nsqlookupd for the channels of a topic.

    Raises:
        OSError, ValueError, http.client.HTTPException: no answer, or none that makes sense.
    """
    host, port = parse_address(http_address)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", f"/channels?topic={quote(topic, safe='')}")
        answer = connection.getresponse()
        body = answer.read(_MAX_ANSWER)
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}: {body[:200]!r}")
    try:
        names = peer_json.read_json(body, _MAX_ANSWER)["channels"]
    except (KeyError, TypeError):
        names = None
    if not isinstance(names, list):
        raise ValueError(f"not a list of channels: {body[:200]!r}")
    return [name for name in names if isinstance(name, str) and is_valid_name(name)]
