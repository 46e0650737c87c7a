"""``Receiver``: takes what nsqd sends from the socket to the protocol core; who does it, and when.

The reader thread receives. A thread that waits for the answer to a publish of its own may receive
in its place, since waking it costs as much as the publish itself: the reader then *rests*. It
comes back when it is called, and by itself soon after nobody has received any more; so heartbeats
are answered in time, whatever the publishers do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nsqclient.errors import ConnectionLostError, NSQError, RemoteProtocolError
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.events import Event, Heartbeat, Published
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.transport import RECV_SIZE, Transport
from nsqclient.runtime.trying import try_lock

#: Seconds without a helper after which the reader receives again: far less than a heartbeat, and
#: long enough to cost nothing while publishes follow each other.
_REST = 0.05
#: Seconds between two looks of a thread in the reader's place at whether it may end.
_LOOK = 0.05
#: Bytes that a helper asks for at once: answers are short, and a large buffer costs it page faults.
_ANSWERS = 16 * 1024


class Receiver:
    """The way in of one connection.

    Args:
        address: of nsqd, for errors.
        core: takes the bytes; ``core_lock`` guards it.
        flush: writes what the core answers by itself, without waiting; True when bytes were left.
        dispatch: called with what has happened, in order; may raise.
        patience: seconds of silence after which nsqd counts as dead.

    Threads: ``run`` on the reader thread; ``help`` and ``call_reader`` on any.
    """

    def __init__(
        self,
        address: str,
        core: ClientProtocol,
        core_lock: threading.Lock,
        flush: Callable[[], bool],
        dispatch: Callable[[list[Event]], None],
        patience: float,
    ) -> None:
        self._address = address
        self._core = core
        self._core_lock = core_lock
        self._flush = flush
        self._dispatch = dispatch
        self._patience = patience
        self._turn = threading.Lock()  # who holds it receives; guards all below
        self._turn.acquire()  # the reader's, from before it runs until after its end
        self._transport: Transport | None = None
        self._heard = 0.0  # when something came last, on time.monotonic()
        self._bytes_left = False  # to be written when the socket takes them
        self._may_have_more = True  # there may be more to receive at once
        self._rounds = 0  # grows with every read
        self._handed: list[Event] = []  # received, and not dispatched yet
        self._failure: NSQError | None = None  # what ends the connection, once those are
        self._is_offered = False  # somebody would rather receive itself; no lock
        self._is_resting = False  # written by the reader; read without a lock
        self._bell = threading.Lock()  # released: the reader is called
        self._bell.acquire()
        self._calling = threading.Lock()  # held while one calls it

    def run(self, transport: Transport, is_over: Callable[[], bool] | None = None) -> None:
        """Receive until the stream ends; leaves by an exception, or where ``is_over()``.

        Args:
            is_over: looked at a few times a second, for a thread that takes the reader's place
                because none can be started. It may call again.

        Raises:
            ConnectionLostError: the end, or silence. RemoteProtocolError: what came is not NSQ.
            NSQError: what ``dispatch`` raised.
        """
        self._begin(transport)
        while True:
            if self._failure is not None:  # of a helper that was interrupted while it read
                with self._core_lock:
                    self._core.move_events(self._handed)
            events, self._handed = self._handed, []
            self._dispatch(events)  # verdicts that came before a fault count
            del events  # its tokens are not kept alive until the next answer
            if self._failure is not None:
                raise self._failure
            if is_over is not None and is_over():
                return
            if self._is_offered and is_over is None:
                self._is_offered = False
                self._rest()
            elif self._wait(None if is_over is None else _LOOK):
                self._failure = self._receive(RECV_SIZE)

    def _begin(self, transport: Transport) -> None:
        if self._transport is None:
            self._transport = transport
            self._heard = time.monotonic()

    def help(self, kind: type, is_settled: Callable[[], bool], deadline: Deadline) -> None:
        """Receive until a publish is settled, unless another thread is at it.

        It handles heartbeats, and OKs to publishes whose token is of this type: those only wake
        other threads.
        Anything else may run code of the user's and is left to the reader, which then takes over.
        So it may return before the publish is settled: wait for that as ever.

        Blocks: until the deadline.
        """
        held: list[bool] = []
        try:
            if not try_lock(self._turn, held):
                self._is_offered = True
                return
            self._help(kind, is_settled, deadline)
        except NSQError as exc:
            self._failure = exc  # the reader ends the connection
        finally:
            if held == [True]:
                self._turn.release()
                # After the release: a thread that did not get the turn has sent before it tried.
                if self._handed or self._failure or self._bytes_left or self._core.awaits_answer():
                    self.call_reader()

    def _help(self, kind: type, is_settled: Callable[[], bool], deadline: Deadline) -> None:
        # Not in the "try" of help(): in Python 3.13 what a signal handler raises at the jump back
        # to the start of a loop passes by the "finally" around it.
        while not (is_settled() or self._handed or self._failure):
            if self._wait(deadline.remaining()):
                self._receive_for(kind)
            elif deadline.expired():
                return

    def call_reader(self) -> None:
        """Let the reader receive again: an answer is awaited that no helper waits for."""
        if self._is_resting:
            with self._calling:
                if self._bell.locked():  # else it was called already
                    self._bell.release()

    def _rest(self) -> None:
        """Let helpers receive. On the reader; needs _turn, and holds it again when it returns."""
        self._is_resting = True
        # Looked at after the flag is set: who sends from now on calls.
        if not (self._core.awaits_answer() or self._core.is_behind or self._bytes_left):
            self._turn.release()
            while True:
                seen = self._rounds
                called = self._bell.acquire(timeout=_REST)
                if (called or self._rounds == seen) and self._turn.acquire(blocking=False):
                    break
        self._is_resting = False

    # -- one read; all of these need _turn

    def _receive_for(self, kind: type) -> None:
        """Receive on a thread of the user's, which an exception may interrupt anywhere."""
        try:
            self._failure = self._receive(_ANSWERS)
            handed = self._handed
            while handed:
                event = handed[0]
                if isinstance(event, Published) and type(event.token) is kind:
                    self._dispatch([event])
                elif not isinstance(event, Heartbeat):
                    return
                del handed[0]  # not before: an interrupted one is left to the reader
        except NSQError:
            raise
        except BaseException:
            # From a signal handler, as with Ctrl-C: bytes may have been taken from the socket and
            # not reached the core.
            self._failure = ConnectionLostError(self._address, "interrupted while receiving")
            raise

    def _wait(self, longest: float | None) -> bool:
        """Wait until there is something to receive; False when ``longest`` seconds were over."""
        if self._may_have_more or self._core.is_behind:
            return True
        if self._bytes_left:
            self._bytes_left = self._flush()
        until = self._heard + self._patience
        timeout = max(0.0, until - time.monotonic())
        if longest is not None and longest < timeout:
            timeout = longest
        assert self._transport is not None
        if self._transport.wait(timeout, for_write=self._bytes_left):
            return True
        # After a look: it is not nsqd that was silent when our process did not run for a while.
        if time.monotonic() >= until:
            raise ConnectionLostError(self._address, f"silent for {self._patience:g} s")
        return False

    def _receive(self, size: int) -> RemoteProtocolError | None:
        """Take what is there; note what has happened, return what is wrong with the rest."""
        transport, core = self._transport, self._core
        assert transport is not None
        self._rounds += 1
        data = b""
        if not core.is_behind:  # else it is to read first what came before
            received = transport.recv(size)
            if received is None:
                self._may_have_more = False
                return None
            data = received
            if not data:
                with self._core_lock:
                    core.receive_eof()
                raise ConnectionLostError(self._address, "closed by the peer")
            self._may_have_more = len(data) == size  # less: the socket is empty now
            self._heard = time.monotonic()
        broken: RemoteProtocolError | None = None
        with self._core_lock:
            try:
                core.receive_data(data)
            except RemoteProtocolError as exc:
                broken = exc
            core.move_events(self._handed)
            answer = core.has_data_to_send()
        if answer:  # the NOP to a heartbeat
            self._bytes_left = self._flush()
        return broken
