"""Subscription against a scripted nsqd: what leaves for each answer, and what is counted.

Its tables by value: what is in flight, and what expired unhandled.
"""

import socket
import struct
import threading
import time
from collections import deque

import pytest

from nsqclient.config import Config
from nsqclient.consumer.backoff import Outcome
from nsqclient.consumer.rdy import RdyState
from nsqclient.consumer.in_flight import InFlightTable, DeliveryCounts
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import AlreadyRespondedError
from nsqclient.message import Message
from nsqclient.protocol.events import Endpoint
from nsqclient.runtime.deadline import Deadline
from tests.support.consumer_context import make_context
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

    def give_up(self, message, reason):
        self.given_up = message, reason

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
        self.sub.open(Deadline(30))
        self.sub.rdy_state = RdyState(self.sub, 2500, 0.0)
        self.sub.conn.start()
        return self

    @property
    def one(self):
        return wait_until(lambda: self.delegate.messages)[0]

    def mark_lost(self):
        self.sub.conn.close()
        assert self.delegate.ended.wait(30)

    def __exit__(self, *exc_info):
        self.sub.conn.close()
        assert self.sub.conn.join(Deadline(30))
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
        sub.open(Deadline(30))
        assert gone.wait(30)
        sub.rdy_state = RdyState(sub, 2500, 0.0, rdy=1)
        wait_until(lambda: sub.post_rdy() or sub.conn.is_closed)
        sub.conn.start()
        assert delegate.ended.wait(30)
        assert len(delegate.lost) == 1


@pytest.mark.parametrize("answer, sent, counter, outcomes, held", [
    (lambda one: one.finish(), b"FIN %b", "finished", [Outcome.SUCCESS], 0),
    # In milliseconds; the automatic delay is the option times attempts.
    (lambda one: one.requeue(), b"REQ %b 90000", "requeued", [Outcome.FAILURE], 0),
    (lambda one: one.requeue(0), b"REQ %b 0", "requeued", [Outcome.FAILURE], 0),
    (lambda one: one.requeue(1.5), b"REQ %b 1500", "requeued", [Outcome.FAILURE], 0),
    (lambda one: one.touch(), b"TOUCH %b", "touched", [], 1),
])
def test_each_answer_is_one_command(answer, sent, counter, outcomes, held):
    with Session(lines(sent % ID)) as session:
        before = session.one.deadline
        answer(session.one)
        assert (len(session.sub), getattr(session.sub.counters, counter)) == (held, 1)
        assert session.delegate.results == outcomes
        assert session.one.deadline > before or not held  # a touch starts the time again


def test_a_delay_over_the_limit_of_nsqd_is_warned_of_once(caplog):
    """nsqd takes its own limit instead, and says so only in its own log."""
    with Session(lines(b"REQ " + ID + b" 86400000")) as session:
        session.one.requeue(86400)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in said] == [
        "t/c: a requeue delay of 86400 s is over nsqd's limit of 3600 s, which nsqd takes instead:"
        " if its --max-req-timeout is higher, set nsqd_max_req_timeout"]


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


def test_requeueing_unstarted_messages_sends_req_without_delay():
    with Session(lines(b"REQ " + ID + b" 0")) as session:
        assert session.sub.requeue_unstarted([session.one]) == 1
        assert session.sub.requeue_unstarted([session.one]) == 0
        assert session.sub.counters.requeued_unstarted == 1
        assert session.one.has_responded


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
        session.one.deadline -= 50
        session.one.keep_alive()
        session.delegate.timer.advance(600)
        session.sub.rdy_state.rdy = 1
        session.sub.post_rdy()


def test_keep_alive_never_shortens_the_time_that_is_left():
    """nsqd would, where its max_msg_timeout is less than the msg_timeout."""
    with Session(lines(b"RDY 1")) as session:
        session.sub._max_msg_timeout = 30.0
        before = session.one.deadline
        session.one.keep_alive()
        assert session.one.deadline == before
        session.sub.rdy_state.rdy = 1
        session.sub.post_rdy()


def test_rdy_that_is_on_the_wire_is_not_sent_again():
    with Session(lines(b"RDY 3", b"RDY 0")) as session:
        for count in (3, 3, 0, 0):
            session.sub.rdy_state.rdy = count
            session.sub.post_rdy()


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
    """nsqd delivers the messages of a lost connection again on the next one."""
    unhandled = DeliveryCounts()
    with Session(lines()) as session:
        session.sub._unhandled = unhandled
        message = session.one
        session.mark_lost()
        session.sub.drop_expired(message)
        again = Subscription(session.sub.address, make_context(), session.delegate, unhandled)
        assert again.count_handled(message) == 0
    assert "expired" not in caplog.text


# -- its tables


def make(number, deadline=60.0, attempts=1):
    return Message(b"x", b"%016d" % number, attempts, 1, 0.0, deadline, None)


@pytest.fixture
def messages():
    return [make(n, deadline) for n, deadline in enumerate([10.0, 20.0, 30.0])]


@pytest.fixture
def in_flight(messages):
    in_flight = InFlightTable()
    in_flight.add(messages)
    return in_flight


def test_messages_past_their_deadline_do_not_count(in_flight, messages):
    """nsqd has taken them back; they are still held until they are forgotten."""
    assert [in_flight.count(now) for now in (0.0, 10.0, 29.0, 30.0)] == [3, 2, 1, 0]
    assert in_flight.unanswered(15.0) == set(messages[1:])
    in_flight.forget(25.0)
    assert (len(in_flight), in_flight.counters.orphaned) == (1, 2)


def test_a_second_delivery_replaces_the_first(in_flight, messages):
    """The answer of the first would finish the second under its handler: it is not sent."""
    again = make(0, attempts=2)
    assert in_flight.add([again]) == []
    assert in_flight.holds(again) and not in_flight.holds(messages[0])
    assert in_flight.take_finished(deque([messages[0]])) == ([], 0)
    assert in_flight.counters.late_answers == 1
    assert in_flight.take_finished(deque([again])) == ([again.id], 0)


@pytest.mark.parametrize("before, attempts, is_mistake", [
    (1, 1, True), (7, 3, True), (1, 2, False), (1, 9, False), (65535, 0, False), (65535, 3, False),
])
def test_a_delivery_of_what_is_in_flight_is_a_mistake_unless_attempts_grow(
    in_flight, before, attempts, is_mistake
):
    """nsqd delivers so after a SIGKILL; the first delivery may still be answered."""
    first, again = make(7, attempts=before), make(7, attempts=attempts)
    assert in_flight.add([first, make(8)]) == []
    assert in_flight.add([make(9), again]) == [again] * is_mistake
    assert in_flight.holds(first) == is_mistake
    one, other = make(5, attempts=before), make(5, attempts=attempts)
    assert in_flight.add([one, other]) == [other] * is_mistake


def test_what_is_finished_when_the_connection_is_gone_is_lost(in_flight, messages):
    """The message counts as orphaned, and its answer as lost."""
    in_flight.mark_lost()
    assert in_flight.take_finished(deque(messages[:1])) == ([], 1)
    assert (len(in_flight), in_flight.counters.orphaned, in_flight.is_lost) == (0, 3, True)


def test_the_time_of_messages_ends_with_their_connection(in_flight, messages):
    """nsqd gives the messages to another consumer immediately, so queued ones are not handled."""
    expired = messages[0].deadline = 1.0
    messages[1].deadline = messages[2].deadline = float("inf")
    in_flight.mark_lost()
    in_flight.extend(messages[1], float("inf"))
    assert messages[0].deadline == expired
    assert all(message.deadline <= time.monotonic() for message in messages)


def test_an_expired_message_gets_no_more_time(in_flight, messages):
    messages[2].deadline = float("inf")
    in_flight.expire(messages[2].id)
    in_flight.expire(b"unknown")
    assert messages[2].time_left <= 0


HERE = Endpoint("a:4150")


@pytest.mark.parametrize("place, name, count", [
    (HERE, b"1", 3), (HERE, b"2", 0), (Endpoint("b:4150"), b"1", 0),
    (Endpoint("a:4150", 0), b"1", 0),
])
def test_each_delivery_that_expired_counts(place, name, count):
    """Ids are unique within a topic of an nsqd, or within a partition."""
    unhandled = DeliveryCounts()
    for _ in range(3):
        unhandled.add(HERE, b"1")
    assert unhandled.count(place, name) == count


def test_the_message_whose_last_expiry_is_oldest_is_forgotten():
    """So memory is bounded, and a message that goes on expiring is kept."""
    unhandled = DeliveryCounts(most=2)
    for name in (b"1", b"2", b"1", b"3"):
        unhandled.add(HERE, name)
    assert [unhandled.count(HERE, name) for name in (b"1", b"2", b"3")] == [2, 0, 1]
