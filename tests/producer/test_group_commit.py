"""Synchronous publishes of many threads: what shares a command, and what may go wrong."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
import weakref
from collections import deque

import pytest

from nsqclient.errors import ConnectionLostError, server_error
from nsqclient.producer import group_commit
from nsqclient.producer.group_commit import Batch, GroupCommit, PendingPublish, take_batch
from nsqclient.producer.outcome import PublishOutcome, StaleConnection
from tests.support.fake_nodes import FakeNodes
from tests.support.faults.interrupts import interrupt_everywhere
from tests.support.waiting import wait_until

WAIT = 30.0
LOST = ConnectionLostError("nsqd:4150", "reset")
STORED = PublishOutcome.STORED


@pytest.fixture
def nodes():
    """One nsqd that takes all and answers nothing by itself."""
    return FakeNodes()


def pending(topic, timeout=WAIT, body=b"x", alone=False):
    """Make a message with so many seconds."""
    return PendingPublish(topic, body, alone, time.monotonic() + timeout)


class Publishing:
    """A message that a thread of its own publishes."""

    def __init__(self, nodes, topic, body=b"x", timeout=WAIT, retry_unknown=True, alone=False):
        self.message = pending(topic, timeout, body, alone)
        self._thread = threading.Thread(
            target=nodes.group.publish, args=(self.message, timeout / 4, retry_unknown)
        )
        self._thread.start()

    def is_running(self):
        """Whether its thread waits for the outcome."""
        return self._thread.is_alive()

    def outcome(self):
        """Wait for the end of the thread, and return what it knows."""
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        return self.message.outcome


def publish(nodes, *topics, **options):
    """Publish from a thread for each topic, one queued after the other."""
    started = []
    for topic in topics:
        queued = len(nodes.group._queue) + len(nodes.sent)
        started.append(Publishing(nodes, topic, **options))
        wait_until(lambda: len(nodes.group._queue) + len(nodes.sent) > queued
                   or not started[-1].is_running())
    return started


def lines(nodes):
    """The first lines of the commands that were sent."""
    return [command.partition(b"\n")[0] for command, _ in nodes.sent]


def is_idle(group):
    """Whether nothing is queued or taken, and nobody leads."""
    return group._leader is None and not group._queue and not group._taken


def answer_in_place(nodes, outcome=STORED, error=None):
    """From now on each leader receives the answers to all that was sent."""
    def receive_until(kind, is_settled, until):
        assert kind is Batch
        for _, token in list(nodes.sent):
            token.settle(outcome, error)

    nodes.receive_until = receive_until


# -- what is sent together


@pytest.mark.parametrize("one_command, expected", [(False, ["a", "a", "b"]), (True, ["a", "a"])])
def test_a_batch_is_taken_from_the_front_of_the_queue(one_command, expected):
    """For one command up to another topic, and always up to the limit of bytes."""
    queue = deque([pending(topic, body=b"x" * 10) for topic in "aaba"])
    batch = []
    take_batch(queue, batch, 4 + 3 * 14, one_command=one_command)
    assert [one.topic for one in batch] == expected
    assert len(queue) == 4 - len(expected)


def test_a_message_that_is_too_large_for_a_batch_is_taken_alone():
    """Else it would stay for ever."""
    queue, batch = deque([pending("a", body=b"x" * 10), pending("a")]), []
    take_batch(queue, batch, 5, one_command=False)
    assert len(batch) == len(queue) == 1


def test_messages_that_wait_together_are_sent_together(nodes):
    """The first is sent at once; what is queued until its answer is sent then, topic by topic."""
    first, *others = publish(nodes, "a", "a", "b", "a")
    assert lines(nodes) == [b"PUB a"]
    nodes.token(0).settle(STORED, None)
    assert first.outcome() is STORED
    assert nodes.sent_line(2) == b"PUB b" and nodes.sent_line(1) == b"MPUB a"
    for number in (1, 2):
        nodes.token(number).settle(STORED, None)
    assert [one.outcome() for one in others] == [STORED] * 3
    assert is_idle(nodes.group)


def test_an_mpub_stays_under_the_limit_of_bytes(nodes):
    """What does not fit is sent by the next leader."""
    nodes.group = GroupCommit(nodes, 100)
    started = publish(nodes, *"aaaa", body=b"x" * 40)
    for number in range(3):
        nodes.token(number).settle(STORED, None)
    assert [one.outcome() for one in started] == [STORED] * 4
    assert lines(nodes) == [b"PUB a", b"MPUB a", b"PUB a"]


def test_a_command_of_its_own_is_sent_as_it_is(nodes):
    """A DPUB, or an MPUB of publish_many, shares the write and not the command."""
    first, plain = publish(nodes, "a", "a")
    (alone,) = publish(nodes, "a", body=b"DPUB a 5\n", alone=True)
    nodes.token(0).settle(STORED, None)
    nodes.token(2)
    assert lines(nodes)[1:] == [b"PUB a", b"DPUB a 5"]
    for number in (1, 2):
        nodes.token(number).settle(STORED, None)
    assert [one.outcome() for one in (first, plain, alone)] == [STORED] * 3


def test_a_lone_publisher_receives_its_own_answer(nodes):
    """No other thread is woken for it."""
    threads = []
    settle = Batch.settle

    def receive_until(kind, is_settled, until):
        threads.append(threading.current_thread())
        settle(nodes.token(0), STORED, None)
        assert is_settled()

    nodes.receive_until = receive_until
    message = pending("a")
    nodes.group.publish(message, WAIT, True)
    assert message.outcome is STORED and threads == [threading.current_thread()]


def test_the_leader_receives_the_answers_of_all_topics(nodes):
    """None of its batch waits for the reader."""
    answer_in_place(nodes)
    for topic in ("b", "c"):
        nodes.group._queue.append(pending(topic))
    others = list(nodes.group._queue)
    nodes.group.publish(pending("a"), WAIT, True)
    assert [one.outcome for one in others] == [STORED] * 2 and is_idle(nodes.group)


# -- outcomes


def test_each_message_of_a_rejected_mpub_is_to_be_sent_alone(nodes):
    """nsqd rejected it because of one of them."""
    first, *others = publish(nodes, "a", "a", "a")
    nodes.token(0).settle(STORED, None)
    nodes.token(1).settle(PublishOutcome.REJECTED, server_error(b"E_BAD_MESSAGE too big"))
    assert first.outcome() is STORED
    assert [one.outcome() for one in others] == [PublishOutcome.NOT_READ] * 2


def test_a_message_whose_time_is_over_is_not_sent(nodes):
    """Its thread knows that it was not sent, and the others do not wait for it."""
    first, = publish(nodes, "a")
    late, = publish(nodes, "late", timeout=0.1)
    other, = publish(nodes, "b")
    assert late.outcome() is PublishOutcome.NOT_READ and not late.message.is_done
    nodes.token(0).settle(STORED, None)
    nodes.token(1).settle(STORED, None)
    assert (first.outcome(), other.outcome()) == (STORED, STORED)
    assert lines(nodes) == [b"PUB a", b"PUB b"]


def test_a_second_attempt_waits_no_longer_than_until_the_deadline(nodes):
    """Little time is left when it joins: less than after which an nsqd is stalled."""
    leading, = publish(nodes, "a")  # for WAIT / 4
    late = pending("b", 0.05)
    nodes.group.publish(late, WAIT, True)
    assert late.outcome is PublishOutcome.NOT_READ and lines(nodes) == [b"PUB a"]
    nodes.token(0).settle(STORED, None)
    assert leading.outcome() is STORED


def test_a_sent_message_without_an_answer_is_unknown(nodes):
    """Its thread leaves at the deadline, and the next one leads."""
    first, = publish(nodes, "a", timeout=1)
    other, = publish(nodes, "b")
    assert first.outcome() is PublishOutcome.UNKNOWN and not first.message.is_done
    nodes.token(1).settle(STORED, None)
    assert other.outcome() is STORED and is_idle(nodes.group)


def test_a_connection_that_ended_before_costs_nothing(nodes):
    """All that were to be sent try again, and the next message is sent."""
    nodes.stale = 1
    one = Publishing(nodes, "a")
    assert one.outcome() is PublishOutcome.NOT_READ
    assert isinstance(one.message.error, StaleConnection)
    (other,) = publish(nodes, "b")
    nodes.token(0).settle(STORED, None)
    assert other.outcome() is STORED and lines(nodes) == [b"PUB b"]


def test_the_end_of_a_connection_settles_what_was_sent(nodes):
    """What is queued goes on with the next leader."""
    first, second = publish(nodes, "a", "b")
    nodes.token(0).settle(PublishOutcome.UNKNOWN, LOST)
    assert first.outcome() is PublishOutcome.UNKNOWN and first.message.error is LOST
    nodes.token(1).settle(STORED, None)
    assert second.outcome() is STORED


@pytest.mark.parametrize("retry_unknown", [True, False])
def test_a_stalled_nsqd_is_left_where_that_is_allowed(nodes, retry_unknown, monkeypatch):
    """A queued message may always go elsewhere, a sent one only with retry_unknown."""
    monkeypatch.setattr(nodes, "mark_unresponsive", lambda progress: True)
    options = {"timeout": 2.0, "retry_unknown": retry_unknown}
    sent, = publish(nodes, "a", **options)
    queued, = publish(nodes, "b", **options)
    nodes.group._leader = sent.message  # so that it stays queued
    sent.outcome()
    assert (sent.message.error is None) is not retry_unknown
    if retry_unknown:
        assert "no answer" in str(sent.message.error)
    queued.outcome()


def test_a_signal_changes_no_outcome(nodes):
    """Its handler runs, and the publish goes on waiting."""
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *args: handled.append(1))

    def answer():
        token = nodes.token(0)
        wait_until(lambda: len(handled) >= 3)
        token.settle(STORED, None)

    answering = threading.Thread(target=answer)
    answering.start()
    message = pending("a")
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        nodes.group.publish(message, WAIT, True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    answering.join(WAIT)
    assert message.outcome is STORED and len(handled) >= 3


def test_a_message_that_was_stored_is_freed_at_once(nodes):
    """No circle waits for the garbage collector."""
    answer_in_place(nodes)
    message = pending("a")
    nodes.group.publish(message, WAIT, True)
    freed = weakref.ref(message)
    gc.disable()
    try:
        nodes.sent.clear()
        del message
        assert freed() is None
    finally:
        gc.enable()


def test_a_leader_wakes_those_whose_turn_does_not_come(nodes):
    """A thread that does not come back to wake the next one delays the others by milliseconds."""
    answer_in_place(nodes)
    followers = [pending(topic) for topic in ("a", "b", "b")]
    nodes.group._queue.extend(followers)
    nodes.group.publish(pending("a"), WAIT, True)
    assert [(one.is_done, one.wake.locked()) for one in followers] == [(True, False)] * 3


def test_many_threads_are_served(nodes, monkeypatch):
    """Whatever they meet, each message is stored, and none twice; each thread wakes the next."""
    monkeypatch.setattr(group_commit, "_IN_TURN", WAIT)
    answer_in_place(nodes)
    barrier = threading.Barrier(8)

    def work(name):
        barrier.wait(WAIT)
        for number in range(100):
            message = pending(name, body=b"%d" % number)
            nodes.group.publish(message, WAIT, True)
            assert message.outcome is STORED
        done.append(name)

    done = []
    threads = [threading.Thread(target=work, args=(f"t{n % 3}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(done) == 8 and is_idle(nodes.group)
    assert sum(len(token.messages) for _, token in nodes.sent) == 800


# -- exceptions of signal handlers, at every point of a leader


#: What runs on the thread of a leader.
LEADING = [
    GroupCommit.publish, GroupCommit._wait, GroupCommit._exchange, GroupCommit._divide,
    GroupCommit._wake_in_turn, GroupCommit._pass_lead, GroupCommit._leave, GroupCommit._withdraw,
    Batch.settle, Batch.command, take_batch,
]


def follow(nodes, message):
    """Do what the thread of a queued message does."""
    group = nodes.group
    if not message.is_done:
        assert group._leader is message or message not in group._queue
        group._wait(message, WAIT, True)
        group._leave(message)
    assert message.is_done


@pytest.mark.parametrize("function", LEADING, ids=lambda function: function.__qualname__)
@pytest.mark.parametrize("state", ["answers", "has just ended", "does not answer"])
def test_a_leader_that_is_interrupted_anywhere_keeps_nobody_waiting(state, function):
    """Its followers have an outcome, or one of them leads; and the next message is sent."""
    def work():
        nodes = FakeNodes()
        group = nodes.group
        answer_in_place(nodes)
        if state == "does not answer":
            nodes.receive_until = lambda *args: None
        nodes.stale = state == "has just ended"
        followers = [pending(topic) for topic in ("a", "b", "b", "c")]
        group._queue.extend(followers)
        with contextlib.suppress(KeyboardInterrupt):
            timeout = 0.001 if state == "does not answer" else WAIT
            group.publish(pending("b", timeout), timeout, True)

        def check():
            assert not [one for one in followers if one.is_done and one.wake.locked()]
            answer_in_place(nodes)
            nodes.stale = 0
            stored = {id(one) for _, token in nodes.sent for one in token.messages}
            if not stored.issuperset(map(id, followers)):  # interrupted before anybody led
                with contextlib.suppress(StopIteration):
                    group._leader = group._leader or next(iter(group._queue))
            for _, token in list(nodes.sent):
                token.settle(STORED, None)  # the reader comes back by itself
            for one in followers:
                follow(nodes, one)
            for one in followers:
                if one.outcome is STORED:
                    assert any(one in token.messages for _, token in nodes.sent)
            assert is_idle(group)
            group.publish(pending("d"), WAIT, True)
            assert lines(nodes)[-1] == b"PUB d" and is_idle(group)

        return check

    interrupt_everywhere(function, work)


@pytest.mark.parametrize("function", [GroupCommit.publish, GroupCommit._leave])
def test_a_follower_that_is_interrupted_anywhere_leaves_the_queue(function):
    """Whether it is queued, sent, or to lead next: the others go on."""
    def work():
        nodes = FakeNodes()
        group = nodes.group
        (leading,) = publish(nodes, "a")
        message = pending("b", 0.01)
        with contextlib.suppress(KeyboardInterrupt):
            group.publish(message, 0.01, True)

        def check():
            assert message not in group._queue
            answer_in_place(nodes)
            nodes.token(0).settle(STORED, None)
            assert leading.outcome() is STORED
            group.publish(pending("c"), WAIT, True)
            assert lines(nodes)[-1] == b"PUB c" and is_idle(group)

        return check

    assert interrupt_everywhere(function, work) > 1


def test_an_answer_whose_reception_was_interrupted_is_taken_once_more():
    """The reader repeats what a leader did not finish, and wakes nobody twice."""
    def work():
        nodes = FakeNodes()
        messages = [pending("a") for _ in range(3)]
        batch = Batch(messages, nodes.group._lock)
        with contextlib.suppress(KeyboardInterrupt):
            batch.settle(STORED, None)

        def check():
            batch.settle(PublishOutcome.UNKNOWN, LOST)
            assert all(one.is_done for one in messages)
            assert not any(one.wake.locked() for one in messages)

        return check

    assert interrupt_everywhere(Batch.settle, work) > 1


def test_a_thread_that_wakes_before_it_leads_waits_for_the_lead(nodes):
    """A leader wakes its successor first; the successor's look then waits until it leads."""
    first, second = publish(nodes, "a", "b")
    waits = threading.Event()

    class Wake:
        """The lock of the second thread, which reports when it sleeps again."""

        def __init__(self, lock):
            self.locked, self.release, self._lock = lock.locked, lock.release, lock

        def acquire(self, **options):
            waits.set()
            return self._lock.acquire(**options)

    sleeping = second.message.wake

    def rouse():
        second.message.wake = Wake(sleeping)
        sleeping.release()
        assert not waits.wait(0.2)  # it does not sleep with its wake-up spent

    second.message.rouse = rouse
    nodes.token(0).settle(STORED, None)
    assert first.outcome() is STORED
    del second.message.rouse
    nodes.token(1).settle(STORED, None)
    assert second.outcome() is STORED
