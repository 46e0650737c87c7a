"""nsqd's side of nsqlookupd: registers what there is with one nsqlookupd, and keeps at it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nsqclient.errors import ConnectionLostError, NSQError
from nsqclient.protocol.lookupd import Identity
from nsqclient.protocol.lookupd_client import LookupdClientCore
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import Transport, format_address

logger = logging.getLogger("nsqclient.devserver")

#: nsqd's fixed figures, in seconds: how often it pings, and what it grants to dialing and to
#: each answer.
PING_INTERVAL = 15.0
IO_TIMEOUT = 1.0


class Change(NamedTuple):
    """A topic, or with ``channel`` a channel, that nsqd has made or lost."""

    created: bool
    topic: str
    channel: str | None


#: Everything that nsqd has now: each channel, and None for each topic without channels.
Registrations = Callable[[], Iterable[tuple[str, str | None]]]


class LookupdPeer:
    """Keeps one nsqlookupd informed.

    Life: created, :meth:`start`, :meth:`stop`. A lost connection is made again at the next PING
    or change, and everything is registered anew.

    Args:
        address: the nsqlookupd's TCP address, ``host:port``.
        identity: called for each connection: who this nsqd is.
        registrations: called for each connection, in the peer's thread.
        ping_interval: seconds between two PINGs.
        timeout: seconds for dialing and for each answer.
    """

    def __init__(
        self,
        address: str,
        identity: Callable[[], Identity],
        registrations: Registrations,
        *,
        ping_interval: float = PING_INTERVAL,
        timeout: float = IO_TIMEOUT,
    ) -> None:
        self.address = address
        self._identity = identity
        self._registrations = registrations
        self._ping_interval = ping_interval
        self._timeout = timeout
        self._cond = threading.Condition()
        self._changes: list[Change] = []  # guarded by _cond
        self._stopping = False  # guarded by _cond
        self._transport: Transport | None = None  # set under _cond, by the peer's thread
        self._core: LookupdClientCore | None = None  # the peer's thread only
        self._http_address: str | None = None
        self._tried = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"nsq-lookupd-{address}", daemon=True
        )

    @property
    def http_address(self) -> str | None:
        """Where this nsqlookupd said it answers HTTP; None as long as it never said so."""
        return self._http_address

    def start(self) -> None:
        """Begin to dial and register, in a thread of its own."""
        self._thread.start()

    def wait_until_tried(self, deadline: Deadline) -> None:
        """Wait until the first attempt to register has ended, well or not."""
        self._tried.wait(deadline.remaining())

    def notify(self, change: Change) -> None:
        """Pass a change on; returns at once. Any thread."""
        with self._cond:
            self._changes.append(change)
            self._cond.notify()

    def stop(self, deadline: Deadline | None = None) -> None:
        """Close the connection, which unregisters this nsqd. The caller holds no lock that
        ``registrations`` takes.

        Blocks: until the thread has ended (while it dials, up to ``timeout``), or the deadline.
        """
        with self._cond:
            self._stopping = True
            self._cond.notify()
            if self._transport is not None:
                self._transport.shutdown()
        if self._thread.ident is not None:
            self._thread.join(None if deadline is None else deadline.remaining())

    def _run(self) -> None:
        next_ping = time.monotonic() + self._ping_interval
        self._round([], is_ping_due=False)
        self._tried.set()
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
                next_ping = time.monotonic() + self._ping_interval
        self._disconnect()

    def _round(self, changes: list[Change], is_ping_due: bool) -> None:
        """Connect if need be, say what is to be said, and hear the answers."""
        try:
            if self._core is None:
                core, transport = self._connect()
            else:
                core, transport = self._core, self._transport
            for change in changes:
                say = core.send_register if change.created else core.send_unregister
                say(change.topic, change.channel)
            if is_ping_due:
                core.send_ping()
            self._exchange(core, transport)
        except NSQError as exc:
            logger.warning("LOOKUPD(%s): %s", self.address, exc)
            self._disconnect()
        except Exception:
            logger.exception("LOOKUPD(%s): round failed", self.address)
            self._disconnect()

    def _connect(self) -> tuple[LookupdClientCore, Transport | None]:
        logger.info("LOOKUP connecting to %s", self.address)
        transport = Transport.connect(self.address, Deadline(self._timeout))
        core = LookupdClientCore(self._identity())
        with self._cond:
            self._transport = transport
            if self._stopping:
                transport.shutdown()
            # What is waiting here is already done in nsqd, so the registrations show it. What
            # comes later is said again after them, which does no harm.
            self._changes.clear()
        self._core = core
        for topic, channel in self._registrations():
            core.send_register(topic, channel)
        self._exchange(core, transport)
        return core, transport

    def _exchange(self, core: LookupdClientCore, transport: Transport | None) -> None:
        """Write what the core has to say and read until every command has its answer."""
        if transport is None:
            raise ConnectionLostError(self.address, "closed")
        data = core.data_to_send()
        while data:
            data = data[transport.send_some(data):]
            if data:
                transport.wait_writable(self._timeout)
        while core.pending:
            received = transport.recv()
            if received is None:
                if not transport.wait(self._timeout):
                    raise ConnectionLostError(
                        self.address, f"no answer within {self._timeout:g} s"
                    )
                continue
            if not received:
                raise ConnectionLostError(self.address, "closed by nsqlookupd")
            core.receive_data(received)
            self._take_events(core)

    def _take_events(self, core: LookupdClientCore) -> None:
        for event in core.take_events():
            if isinstance(event, Identity):
                logger.info("LOOKUPD(%s): peer info %s", self.address, event)
                if event.broadcast_address:
                    self._http_address = format_address(event.broadcast_address, event.http_port)
            elif event.error is not None:
                raise event.error

    def _disconnect(self) -> None:
        with self._cond:
            transport, self._transport = self._transport, None
        self._core = None
        if transport is not None:
            transport.shutdown()
            transport.close()
