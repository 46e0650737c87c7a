"""Subscription against a scripted nsqd: what leaves for each answer, and what is counted."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from nsqclient.config import Config
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.rdy import RdyState
from nsqclient.consumer.subscription import Subscription, UnhandledDeliveries
from nsqclient.errors import AlreadyRespondedError
from nsqclient.runtime.deadline import Deadline
from tests.support.consumer_context import make_context
from tests.support.faults.interrupts import Interruption
from tests.support.processes import start_threads
from tests.support.servers.scripted import OK, ScriptedServer, error, message, response
from tests.support.virtual_time import VirtualTimer
from tests.support.waiting import wait_until

LIMITS = b'{"max_rdy_count": 2500, "msg_timeout": 60000, "max_msg_timeout": 900000}'


class FakeDelegate:
    """A SubscriptionOwner that keeps what is reported to it."""

    def __init__(self):
        self.messages, self.results, self.lost, self.soon = [], [], [], []
        self.timer = VirtualTimer()
        self.ended = threading.Event()
        self.is_worker = False

    def on_messages(self, sub, messages, size):
        self.messages += messages

    def on_result(self, outcome):
        self.results.append(outcome)

    def flush_soon(self, sub):
        self.soon.append(sub)
        if not self.is_worker:
            sub.flush()

    def on_lost(self, sub, error):
        self.lost.append(error)
        self.ended.set()


def lines(*wanted):
    """A script that gives one message and then expects these commands."""
    def script(peer):
        peer.identify(response(LIMITS))
        peer.line()
        peer.send(OK, message())
        for line in wanted:
            assert peer.line() == line
        peer.until_closed()

    return script


class Session:
    """An open subscription to a server with a script; ``one`` is the first message."""

    def __init__(self, script, **options):
        self.server = ScriptedServer(script)
        self.delegate = FakeDelegate()
        self._options = options

    def __enter__(self):
        self.server.__enter__()
        context = make_context(Config(**self._options), self.delegate.timer)
        self.sub = Subscription(self.server.address, context, self.delegate)
        self.sub.open(Deadline(5))
        self.sub.rdy_state = RdyState(self.sub, 2500, 0.0)
        self.sub.conn.start()
        return self

    @property
    def one(self):
        return wait_until(lambda: self.delegate.messages)[0]

    def mark_lost(self):
        self.sub.conn.close()
        assert self.delegate.ended.wait(5)

    def __exit__(self, *exc_info):
        self.sub.conn.close()
        assert self.sub.conn.join(Deadline(5))
        self.server.__exit__(*exc_info)


ID = b"0" * 16


def test_a_loss_before_the_reader_starts_is_reported():
    gone = threading.Event()

    def script(peer):
        peer.subscribe()
        # Closing with this option resets the connection.
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()
        gone.set()

    with ScriptedServer(script) as server:
        delegate = FakeDelegate()
        sub = Subscription(server.address, make_context(), delegate)
        sub.open(Deadline(5))
        assert gone.wait(5)
        sub.rdy_state = RdyState(sub, 2500, 0.0, rdy=1)
        wait_until(lambda: sub.post_rdy() and sub.conn.is_closed)
        sub.conn.start()
        assert delegate.ended.wait(5)
        assert len(delegate.lost) == 1


def test_finish_sends_fin():
    with Session(lines(b"FIN " + ID)) as session:
        session.one.finish()
        assert (len(session.sub), session.sub.counters.finished) == (0, 1)
        assert session.delegate.results == [Outcome.SUCCESS]


@pytest.mark.parametrize("delay, sent", [(None, b"90000"), (0, b"0"), (1.5, b"1500")])
def test_requeue_sends_req(delay, sent):
    """The delay is in milliseconds; the automatic one is the option times attempts."""
    with Session(lines(b"REQ " + ID + b" " + sent)) as session:
        session.one.requeue(delay)
        assert (len(session.sub), session.sub.counters.requeued) == (0, 1)
        assert session.delegate.results == [Outcome.FAILURE]


def test_a_delay_over_the_limit_of_nsqd_is_warned_of_once(caplog):
    """nsqd takes its own limit instead, and says so only in its own log."""
    with Session(lines(b"REQ " + ID + b" 86400000")) as session:
        session.one.requeue(86400)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in said] == [
        "t/c: a requeue delay of 86400 s is over nsqd's limit of 3600 s, which nsqd takes instead:"
        " if its --max-req-timeout is higher, set nsqd_max_req_timeout"]


def test_touch_starts_the_time_again():
    with Session(lines(b"TOUCH " + ID)) as session:
        before = session.one.deadline
        session.one.touch()
        assert session.one.deadline > before
        assert session.sub.counters.touched == 1


def test_a_touch_that_nsqd_refuses_gives_no_time():
    """After E_TOUCH_FAILED the message is nsqd's again, and time_left says so."""
    def script(peer):
        peer.identify(response(LIMITS))
        peer.line()
        peer.send(OK, message())
        peer.line()
        peer.send(error("E_TOUCH_FAILED TOUCH %s failed ID not in flight" % ID.decode()))
        peer.until_closed()

    with Session(script) as session:
        session.one.touch()
        wait_until(lambda: session.sub.counters.late_answers)
        assert session.one.time_left <= 0
        assert session.sub.count_in_flight(session.one.deadline) == 0


def test_keep_alive_touches_until_the_answer():
    """TOUCH now and after each half of the timeout; none after the answer."""
    with Session(lines(*[b"TOUCH " + ID] * 3, b"FIN " + ID)) as session:
        timer = session.delegate.timer
        session.one.keep_alive()
        timer.advance(60)
        session.one.finish()
        timer.advance(1000)
        assert timer.delays == [30] * 3


def test_keep_alive_holds_no_message():
    with Session(lines(b"TOUCH " + ID, b"FIN " + ID)) as session:
        session.one.keep_alive()
        task = session.delegate.timer._heap[0][2].action
        held = [cell.cell_contents for cell in task.__closure__]
        assert session.one not in held
        session.one.finish()


@pytest.mark.parametrize("answer", ["finish", "requeue"])
def test_a_message_has_one_answer(answer):
    with Session(lines()) as session:
        getattr(session.one, answer)()
        for again in (session.one.finish, session.one.requeue, session.one.touch):
            with pytest.raises(AlreadyRespondedError):
                again()


@pytest.mark.parametrize("answer", ["finish", "requeue", "touch"])
def test_an_answer_without_a_connection_is_counted(answer, caplog):
    with Session(lines()) as session:
        session.one  # it came
        session.mark_lost()
        assert session.sub.counters.orphaned == 1
        getattr(session.one, answer)()
        assert (session.sub.counters.lost_answers, session.sub.counters.late_answers) == (1, 0)
        assert "1 response lost" in caplog.text


def test_of_answers_from_many_threads_one_is_sent():
    won = []
    barrier = threading.Barrier(10)

    def answer():
        barrier.wait(5)
        with contextlib.suppress(AlreadyRespondedError):
            session.one.finish()
            won.append(True)

    with Session(lines(b"FIN " + ID)) as session:
        for thread in start_threads(10, answer):
            thread.join()
    assert len(won) == 1


def test_requeueing_unstarted_messages_sends_req_without_delay():
    with Session(lines(b"REQ " + ID + b" 0")) as session:
        assert session.sub.requeue_unstarted([session.one]) == 1
        assert session.sub.requeue_unstarted([session.one]) == 0
        assert session.sub.counters.requeued_unstarted == 1
        assert session.one.has_responded


def test_a_message_that_may_not_be_queued_is_requeued_and_is_no_failed_attempt():
    """Requeued at once; it cannot be given up because it came at a bad time."""
    with Session(lines(b"REQ " + ID + b" 0")) as session:
        session.sub.requeue_excess([session.one])
        assert session.sub.counters.requeued_unstarted == 1
        assert session.sub.count_handled(session.one) == session.one.attempts - 1


def test_an_expired_message_is_not_finished():
    """No handler had it, and nsqd delivers it again: nothing about it leaves."""
    with Session(lines(b"RDY 1")) as session:
        session.sub.drop_expired(session.one)
        assert (len(session.sub), session.sub.counters.expired) == (0, 1)
        with pytest.raises(AlreadyRespondedError):
            session.one.finish()
        session.sub.flush()
        session.sub.rdy_state.rdy = 1
        session.sub.post_rdy()


def test_keep_alive_ends_at_the_longest_time():
    """nsqd grants no more than max_msg_timeout: after that no TOUCH leaves, and the log says so."""
    with Session(lines(b"TOUCH " + ID, b"RDY 1")) as session:
        session.one.received -= 870  # of 900
        session.one.keep_alive()
        session.delegate.timer.advance(600)
        session.sub.rdy_state.rdy = 1
        session.sub.post_rdy()


def test_rdy_that_is_on_the_wire_is_not_sent_again():
    with Session(lines(b"RDY 3", b"RDY 0")) as session:
        for count in (3, 3, 0, 0):
            session.sub.rdy_state.rdy = count
            assert session.sub.post_rdy()


def test_a_delivery_that_expired_does_not_count_as_handled(caplog):
    """The log says what to change, once; the message's next delivery counts for less."""
    with Session(lines()) as session:
        session.sub.drop_expired(session.one)
        session.sub.drop_expired(session.one)
        session.one.attempts = 5
        assert session.sub.count_handled(session.one) == 3
        assert session.sub.counters.expired == 2
    assert caplog.text.count("t/c: 1 message from 127.0.0.1") == 1
    assert "lower max_in_flight, or raise workers or msg_timeout" in caplog.text


def test_the_count_outlives_the_connection(caplog):
    """nsqd delivers again by the next one what it had sent by this one."""
    unhandled = UnhandledDeliveries()
    with Session(lines()) as session:
        session.sub._unhandled = unhandled
        message = session.one
        session.mark_lost()
        session.sub.drop_expired(message)
        again = Subscription(session.sub.address, make_context(), session.delegate, unhandled)
        assert again.count_handled(message) == 0
    assert "expired" not in caplog.text


@pytest.mark.parametrize("answer", [lambda one: one.finish(), lambda one: one.requeue(3)])
def test_an_answer_that_is_interrupted_ends_the_connection(answer):
    """A signal handler raises between the claim and the command: nsqd delivers it again."""
    with Session(lines()) as session:
        def interrupted(outcome):
            raise KeyboardInterrupt

        session.delegate.on_result = interrupted
        with pytest.raises(KeyboardInterrupt):
            answer(session.one)
        assert session.delegate.ended.wait(5)
        assert not len(session.sub) and session.sub.counters.orphaned == 1


def test_a_requeue_that_is_interrupted_anywhere_is_sent_or_costs_the_connection():
    """Wherever it comes: the message is not held for its whole timeout."""
    number = 0
    while True:
        with Session(lines()) as session:
            one = session.one
            interruption = Interruption(
                number, lambda code: code.co_filename.endswith("subscription.py"))
            with contextlib.suppress(KeyboardInterrupt), interruption:
                one.requeue(3)
            if not one.has_responded and not session.sub.conn.is_closed:
                one.requeue(3)
            wait_until(lambda: not len(session.sub))
        if not interruption.has_come:
            break
        number += 1
    assert number > 5
