"""The nsqlookupds of one nsqd: registers topics and channels, and reads a new topic's channels."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO
from urllib.parse import quote

from nsqclient.devserver.auth import fetch
from nsqclient.devserver.broker import TopicChange
from nsqclient.devserver.protocol.lookupd import (
    Identity, command_line, identify, read_ok, read_peer,
)
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.errors import NSQError
from nsqclient.protocol import peer_json
from nsqclient.protocol.names import is_ephemeral, is_valid_name
from nsqclient.runtime.addresses import format_address, parse_address
from nsqclient.runtime.deadline import Deadline

logger: logging.Logger = logging.getLogger("nsqclient.devserver")

#: Seconds for dialing and for each response, and between two PINGs, fixed in nsqd.
IO_TIMEOUT = 1.0
PING_INTERVAL = 15.0
#: Bytes of a list of channels.
_MOST_CHANNELS = 16 * 1024 * 1024

#: Returns (topic, channel) for each channel, and (topic, None) for a topic without channels.
Registrations = Callable[[], Iterable[tuple[str, str | None]]]


class LookupdPeer:
    """Registers with one nsqlookupd.

    Lifecycle: created, :meth:`start`, :meth:`stop`. After a lost connection the next PING or change
    dials again, and everything is registered again.
    """

    def __init__(
        self,
        address: str,
        identity: Callable[[], Identity],
        registrations: Registrations,
    ) -> None:
        self.address = address
        self._identity = identity
        self._registrations = registrations
        self._cond = threading.Condition()
        self._changes: list[TopicChange] = []  # guarded by _cond
        self._stopping = False  # guarded by _cond
        self._sock: socket.socket | None = None  # set under _cond, by the peer's thread
        self._stream: BinaryIO | None = None  # the peer's thread only; set while connected
        #: The HTTP address in its IDENTIFY response; None before the first one.
        self.http_address: str | None = None
        #: Set when the first attempt to register has ended, successful or not.
        self.tried: threading.Event = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"nsq-lookupd-{address}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def notify(self, change: TopicChange) -> None:
        with self._cond:
            self._changes.append(change)
            self._cond.notify()

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close the connection, which unregisters this nsqd. Blocks up to IO_TIMEOUT."""
        with self._cond:
            self._stopping = True
            self._cond.notify()
            if self._sock is not None:
                with contextlib.suppress(OSError):  # nsqlookupd has closed it
                    self._sock.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join(None if deadline is None else deadline.remaining())

    def _run(self) -> None:
        next_ping = time.monotonic() + PING_INTERVAL
        self._round([], is_ping_due=False)
        self.tried.set()
        while True:
            with self._cond:
                while not (self._changes or self._stopping):
                    left = next_ping - time.monotonic()
                    if left <= 0:
                        break
                    self._cond.wait(left)
                if self._stopping:
                    break
                changes, self._changes = self._changes, []
            is_ping_due = time.monotonic() >= next_ping
            self._round(changes, is_ping_due)
            if is_ping_due:
                next_ping = time.monotonic() + PING_INTERVAL
        self._disconnect()

    def _round(self, changes: list[TopicChange], is_ping_due: bool) -> None:
        try:
            if self._stream is None:
                self._connect()
            self._exchange([
                *[command_line("REGISTER" if change.created else "UNREGISTER", change.topic,
                               change.channel) for change in changes],
                *[b"PING\n"] * is_ping_due,
            ])
        except (OSError, NSQError, ValueError) as exc:
            reason = (f"no answer within {IO_TIMEOUT:g} s" if isinstance(exc, TimeoutError)
                      else exc)
            logger.warning("LOOKUPD(%s): %s", self.address, reason)
            self._disconnect()
        except Exception:
            logger.exception("LOOKUPD(%s): round failed", self.address)
            self._disconnect()

    def _connect(self) -> None:
        logger.info("LOOKUP connecting to %s", self.address)
        sock = socket.create_connection(parse_address(self.address), IO_TIMEOUT)
        with self._cond:
            self._sock = sock
            if self._stopping:
                raise ConnectionAbortedError("stopping")
            # The registrations already contain these changes. Later ones are sent again after
            # them, which does no harm.
            self._changes.clear()
        self._stream = sock.makefile("rb")
        sock.sendall(identify(self._identity()))
        peer = read_peer(self._stream)
        logger.info("LOOKUPD(%s): peer info %s", self.address, peer)
        if peer.broadcast_address:
            self.http_address = format_address(peer.broadcast_address, peer.http_port)
        self._exchange([command_line("REGISTER", *names) for names in self._registrations()])

    def _exchange(self, commands: list[bytes]) -> None:
        assert self._sock is not None and self._stream is not None
        self._sock.sendall(b"".join(commands))
        for _ in commands:
            read_ok(self._stream)

    def _disconnect(self) -> None:
        with self._cond:
            sock, self._sock = self._sock, None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if sock is not None:
            sock.close()


class LookupdPeers:
    """The nsqlookupds that an nsqd registers with. Lifecycle: created, :meth:`start`, :meth:`stop`.

    Args:
        identity: returns the identity of this nsqd; called for each connection.
        registrations: called for each connection, in a thread of its own; may take nsqd's lock.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        identity: Callable[[], Identity],
        registrations: Registrations,
    ) -> None:
        self._peers = [LookupdPeer(address, identity, registrations)
                       for address in dict.fromkeys(addresses)]

    def start(self) -> None:
        """Register with all of them.

        Blocks until each was tried once, so that the channels of a new topic can be looked up.
        """
        for peer in self._peers:
            peer.start()
        deadline = Deadline(3 * IO_TIMEOUT)  # dial, identify, register
        for peer in self._peers:
            peer.tried.wait(deadline.remaining())

    def stop(self, deadline: Deadline | None = None) -> None:
        """Unregister this nsqd. The caller holds no lock that ``registrations`` takes."""
        for peer in self._peers:
            peer.stop(deadline)

    def notify(self, change: TopicChange) -> None:
        for peer in self._peers:
            peer.notify(change)

    def channels_of(self, topic: str) -> list[str]:
        """Return the channels of a topic in all nsqlookupds, without ephemeral ones.

        Call it before a topic is created, with no lock held. Blocks: for 5 s with each nsqlookupd
        that does not answer.
        """
        addresses = [each.http_address for each in self._peers if each.http_address is not None]
        if self._peers and not addresses:
            logger.error(
                "no available nsqlookupd to query for channels to pre-create for topic %s", topic
            )
        found: dict[str, None] = {}
        for address in addresses:
            try:
                names = read_channels(address, topic)
            except (OSError, ValueError) as exc:
                logger.warning(
                    "failed to query nsqlookupd %s for channels to pre-create for topic %s - %s",
                    printable(address), topic, printable(str(exc), LONGEST_TEXT),
                )
                continue
            found |= dict.fromkeys(name for name in names if not is_ephemeral(name))
        return list(found)


def read_channels(http_address: str, topic: str) -> list[str]:
    """Read the channels of a topic from one nsqlookupd. Raises OSError or ValueError."""
    body = fetch(f"http://{http_address}/channels?topic={quote(topic, safe='')}", _MOST_CHANNELS)
    try:
        names = peer_json.read_json(body)["channels"]
    except (KeyError, TypeError):
        names = None
    if not isinstance(names, list):
        raise ValueError(f"not a list of channels: {body[:200]!r}")
    return [name for name in names if isinstance(name, str) and is_valid_name(name)]
