"""Handling by value: what each end of a handler means for its message."""

import logging
import time
from concurrent.futures import Future

import pytest

from nsqclient.config import Config
from nsqclient.consumer.processor import HandlerSettings, MessageProcessor
from nsqclient.consumer.retry import Retry, RetryTable
from nsqclient.consumer.in_flight import InFlightTable
from nsqclient.consumer.subscription import Subscription
from nsqclient.errors import ConnectionLostError
from nsqclient.message import Failure, GiveUp, Message, Requeue
from nsqclient.runtime.threads import LibraryThread
from tests.support.consumer_context import make_context
from tests.support.virtual_time import VirtualTimer


class FakeFlow:
    counts_arrivals = is_active = False
    times_handlers = is_limited = True

    def __init__(self):
        self.results, self.handler_times, self.running = [], [], {}
        self.backoff = self

    def hold(self):
        """Nothing is in flight."""

    def on_result(self, outcome):
        self.results.append(outcome.value)


class FakeSubscription(Subscription):
    def __init__(self):
        self.address = self.place = "nsqd:4150"
        self.in_flight = InFlightTable()
        self.answers, self.finished = [], []
        self.fin_batch, self.unhandled, self.msg_timeout = 2, 0, 60.0
        self.lost = False

    def flush(self, **options):
        self.answers += ["FIN"] * len(self.finished)
        del self.finished[:]

    def finish(self, message):
        message.has_responded = True
        self.answers.append("FIN")

    def requeue(self, message, delay, backoff):
        message.has_responded = True
        self.answers.append(("REQ", delay, backoff))
        if self.lost:
            raise ConnectionLostError(self.address, "gone")

    def drop_expired(self, message):
        message.has_responded = True
        self.answers.append("expired")

    def count_handled(self, message):
        return message.attempts - self.unhandled


class Bench:
    """A MessageProcessor with one connection; ``run`` handles one message."""

    def __init__(self, handler=lambda message: None, max_attempts=5, give_up=None, retry=None):
        self.sub, self.timer, self.flow = FakeSubscription(), VirtualTimer(), FakeFlow()
        self.given_up, self.failures = [], []
        self.flow.subscriptions = [self.sub]
        self.processor = MessageProcessor(
            make_context(
                Config(max_attempts=max_attempts), self.timer, topic="consumer", channel=""),
            self.flow,
            HandlerSettings(handler, give_up or self.keep, retry),
        )

    def keep(self, message):
        self.given_up.append(message)
        self.failures.append(message.failure)

    def run(self, attempts=1, life=60.0):
        now = time.monotonic()
        message = Message(b"x", b"0" * 16, attempts, 1, now, now + life, self.sub)
        self.processor.run(message)
        assert self.processor.running == {}
        return message


def raising(failure):
    def handler(message):
        raise failure
    return handler


def test_a_fin_waits_for_others():
    """A FIN is sent with the next one, by an idle worker, or after a few milliseconds."""
    bench = Bench()
    bench.run()
    assert bench.sub.answers == []
    bench.timer.advance(0.005)
    assert bench.sub.answers == ["FIN"]
    bench.run()
    bench.run()
    assert bench.sub.answers == ["FIN"] * 3
    bench.run()
    bench.processor.flush()
    assert bench.sub.answers == ["FIN"] * 4


def test_a_handler_whose_connection_was_lost_is_not_late(caplog):
    """The messages expired with the connection. A batch reports several of them."""
    bench = Bench()
    messages = [bench.run() for _ in range(2)]
    bench.processor.note_late(messages, 100.0, False)
    assert caplog.text.count("longer than msg_timeout") == 1
    bench.sub.in_flight.mark_lost()
    bench.processor.note_late(messages, 100.0, False)
    assert caplog.text.count("longer than msg_timeout") == 1


@pytest.mark.parametrize("handler, answer", [
    (raising(Requeue()), ("REQ", None, True)),
    (raising(Requeue(5, backoff=False)), ("REQ", 5, False)),
    (raising(RuntimeError("x")), ("REQ", None, True)),
    (raising(SystemExit()), ("REQ", None, True)),
    (raising(KeyboardInterrupt()), ("REQ", None, True)),
    (lambda message: Requeue(5, backoff=False), ("REQ", 5, False)),
    (lambda message: Requeue, ("REQ", None, True)),
    (lambda message: GiveUp("no customer"), "FIN"),
])
def test_what_is_raised_or_returned_is_the_answer(handler, answer):
    given_up = []
    bench = Bench(handler, give_up=lambda message: given_up.append(message.failure.reason))
    bench.run()
    assert bench.sub.answers == [answer]
    assert given_up == ["no customer"] * (answer == "FIN")


def test_async_messages_are_left_alone_unless_the_handler_raises():
    for result in (None, Future()):
        bench = Bench(lambda message: message.enable_async() or result)
        bench.run()
        assert (bench.sub.answers, list(bench.sub.finished)) == ([], [])

    def fail(message):
        message.enable_async()
        raise RuntimeError("x")

    bench = Bench(fail)
    bench.run()
    assert bench.sub.answers == [("REQ", None, True)]


def test_false_is_finished_with_one_warning(caplog):
    """Other clients requeue then, so the log says it once."""
    bench = Bench(lambda message: False)
    bench.run()
    bench.run()
    assert bench.sub.answers == ["FIN"] * 2
    assert caplog.text.count("returned False") == 1


async def coroutine(message):
    """A handler that nobody runs."""


@pytest.mark.parametrize("lazy, words", [
    (coroutine, "do the work before returning"), (lambda message: Future(), "enable_async()"),
])
def test_a_handler_that_returns_work_to_be_done_has_failed(lazy, words, caplog):
    bench = Bench(lambda message: lazy(message))
    bench.run()
    assert bench.sub.answers == [("REQ", None, True)]
    assert "handler failed" in caplog.text and words in caplog.text


def test_expired_messages_reach_no_handler():
    handled = []
    bench = Bench(handled.append)
    bench.run(life=-1.0)
    assert (bench.sub.answers, handled) == (["expired"], [])


@pytest.mark.parametrize("attempts, maximum, given_up", [(5, 5, 0), (6, 5, 1), (65535, 0, 0)])
def test_a_message_is_given_up_after_max_attempts(attempts, maximum, given_up):
    bench = Bench(max_attempts=maximum)
    bench.run(attempts)
    bench.processor.flush()
    assert len(bench.given_up) == given_up
    assert bench.sub.answers == ["FIN"]
    assert [failure.exception for failure in bench.failures] == [None] * given_up


def test_a_failure_on_the_last_attempt_gives_up_at_once():
    """The exception is at hand: the next delivery may be another process's."""
    error = ValueError("no total")
    bench = Bench(raising(error))
    bench.run(4)
    assert (bench.sub.answers, bench.given_up) == ([("REQ", None, True)], [])
    bench.run(5)
    assert bench.sub.answers[1:] == ["FIN"]
    assert bench.failures == [Failure("ValueError: no total, after 5 attempts", error)]
    assert bench.flow.results == ["failure"]  # the consumer slows down, as with a requeue
    assert bench.sub.in_flight.counters.given_up == 1


def test_a_requeue_that_is_no_failure_is_never_a_reason_to_give_up():
    bench = Bench(raising(Requeue(1, backoff=False)))
    bench.run(5)
    assert (bench.sub.answers, bench.given_up) == ([("REQ", 1, False)], [])


def test_give_up_gives_up_at_once(caplog):
    bench = Bench(raising(GiveUp("no such customer")))
    message = bench.run(1)
    (failure,) = bench.failures
    assert failure.reason == "no such customer" and isinstance(failure.exception, GiveUp)
    assert (bench.sub.answers, bench.flow.results) == (["FIN"], [])
    assert message.failure is None  # else its traceback would keep it
    assert "handler failed" not in caplog.text


@pytest.mark.parametrize("decision, answer", [
    (Requeue(7), ("REQ", 7, True)), (Requeue(7, backoff=False), ("REQ", 7, False)),
    (None, ("REQ", None, True)), (GiveUp("why"), "FIN"),
])
def test_retry_decides_about_an_exception(decision, answer):
    asked, error = [], RuntimeError("x")
    bench = Bench(raising(error), retry=lambda *given: asked.append(given) or decision)
    message = bench.run()
    assert (asked, bench.sub.answers) == ([(message, error)], [answer])


@pytest.mark.parametrize("result", [
    lambda: 5, lambda: GiveUp, lambda: 1 / 0, lambda: coroutine(None),
])
def test_a_retry_that_fails_is_logged_and_the_default_applies(result, caplog):
    bench = Bench(raising(RuntimeError("x")), retry=lambda message, exception: result())
    bench.run()
    assert bench.sub.answers == [("REQ", None, True)]
    assert "retry failed" in caplog.text


def logged(caplog):
    return [(record.levelname, record.getMessage(), record.exc_info and record.exc_info[1])
            for record in caplog.records]


@pytest.mark.parametrize("retry, delay", [
    (Retry(2.5, jitter=0), "2.5 s"), (RetryTable({}, Requeue), "the default delay"),
    (lambda message, exception: Requeue(0), "0 s"),
])
def test_a_planned_retry_is_one_warning(retry, delay, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient.consumer")
    error = ConnectionError("the bank\ndoes not answer")
    message = Bench(raising(error), retry=retry).run()
    line = f"consumer: retrying {message!r} after {delay}"
    assert logged(caplog) == [
        ("WARNING", rf"{line}: ConnectionError: the bank\ndoes not answer", None),
        ("DEBUG", line, error),
    ]
    assert {record.message_id for record in caplog.records} == {str(message.id)}


@pytest.mark.parametrize("retry, attempts", [
    (None, 1),
    (Retry(), 5),  # the last attempt of the consumer
])
def test_a_failure_that_is_not_planned_or_the_last_is_an_error(retry, attempts, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient.consumer")
    error = ConnectionError("down")
    message = Bench(raising(error), retry=retry).run(attempts)
    assert logged(caplog) == [("ERROR", f"consumer: handler failed for {message!r}", error)]


def test_a_failure_after_an_answer_is_an_error_whatever_the_policy(caplog):
    """Nothing is retried or given up then."""
    def handler(message):
        message.finish()
        raise ConnectionError("down")

    caplog.set_level(logging.DEBUG, "nsqclient.consumer")
    bench = Bench(handler, max_attempts=1, retry=Retry())
    message = bench.run()
    [(level, line, _)] = logged(caplog)
    assert (level, line) == ("ERROR", f"consumer: handler failed for {message!r}")
    assert (bench.sub.answers, bench.given_up) == (["FIN"], [])


@pytest.mark.parametrize("give_up", [
    raising(SystemExit()), lambda message: coroutine(message), lambda message: Future(),
])
def test_giving_up_that_fails_requeues(give_up, caplog):
    """Else a message would be finished that nothing has kept."""
    bench = Bench(give_up=give_up)
    thread = LibraryThread(bench.run, "nsq-x", (6,))
    thread.launch()
    thread.join()
    assert bench.sub.answers == [("REQ", None, True)]
    assert "on_giving_up failed" in caplog.text


def test_an_interrupt_while_giving_up_in_a_loop_requeues_and_reaches_the_loop():
    """A loop over ``messages()`` gives up on the user's thread."""
    bench = Bench(give_up=raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        bench.run(6)
    assert bench.sub.answers == [("REQ", None, True)]


def test_after_an_interrupt_while_a_flush_is_scheduled_the_next_fin_schedules_one():
    """Else no FIN would leave in time any more."""
    bench = Bench()
    schedule = bench.timer.schedule

    def interrupted(delay, action):
        raise KeyboardInterrupt

    bench.timer.schedule = interrupted
    bench.sub.fin_batch = 100
    with pytest.raises(KeyboardInterrupt):
        bench.processor.flush_soon(bench.sub)
    bench.timer.schedule = schedule
    bench.run()
    bench.timer.advance(0.005)
    assert bench.sub.answers == ["FIN"]


def test_giving_up_may_answer_itself():
    bench = Bench(give_up=lambda message: message.requeue(7))
    bench.run(6)
    assert bench.sub.answers[0] == ("REQ", 7.0, True)
