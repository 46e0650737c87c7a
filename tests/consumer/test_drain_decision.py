"""When a channel was seen empty."""

import pytest

from nsqclient.consumer.drain_decision import (
    ChannelDepth, ChannelDepths, DrainDecision, DrainRules, Step,
)

RULES = DrainRules(patience=60.0)
ALLOWED = DrainRules(patience=60.0, silence=2.0)
LOOP = DrainRules(is_loop=True)
EMPTY = ChannelDepth(0, 0, 1)
WAITING = ChannelDepth(3, 0, 1)
HELD = ChannelDepth(0, 3, 1)
PAUSED = WAITING._replace(is_paused=True)
DEFERRED = EMPTY._replace(deferred=3)
#: The report of an nsqd that does not answer.
UNKNOWN = "refused"


def depths_of(*nsqds):
    """The reports of the nsqds a:1, b:1 ...: a depth, or the error."""
    said = {f"{name}:1": one for name, one in zip("abc", nsqds)}
    return ChannelDepths(
        {name: one for name, one in said.items() if isinstance(one, ChannelDepth)},
        {name: one for name, one in said.items() if not isinstance(one, ChannelDepth)})


class Bench:
    """A decision with a clock and a connection: two questions are answered, nothing has changed."""

    def __init__(self, rules, *nsqds, own=0, waits=9.0, asked=(91.0, 98.0)):
        self.decision, self.now, self.own = DrainDecision(rules, 0.2), 90.0, own
        self.connections = {"one": (0.0, True)}
        self.look()
        for moment in asked:
            self.answer(*nsqds, asked=moment)
        self.wait(waits)

    def look(self):
        self.decision.look(self.now, self.connections, self.own)

    def answer(self, *nsqds, asked=None):
        return self.decision.on_answer(self.now if asked is None else asked, depths_of(*nsqds))

    def wait(self, seconds):
        """Look ten times a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.look()

    def message(self, on="one"):
        """A message arrives."""
        self.connections[on] = (self.now, True)
        self.look()

    def decide(self, **more):
        return self.decision.decide(**more)

    def stuck(self):
        """Return for how long the nsqd is in the way."""
        return next((seconds for seconds in range(1000)
                     if not self.with_patience(seconds + 1).stuck()), None)

    def with_patience(self, seconds):
        self.decision._rules = self.decision._rules._replace(patience=seconds - 0.05)
        return self.decision


@pytest.mark.parametrize("nsqds, change, step", [
    ([EMPTY], {}, Step.END),
    ([], {}, Step.WAIT),
    ([EMPTY], {"asked": (91.0,)}, Step.WAIT),
    ([EMPTY], {"asked": (89.0, 90.0)}, Step.WAIT),
    ([EMPTY], {"asked": ()}, Step.WAIT),
    ([PAUSED], {}, Step.END),
    ([WAITING], {}, Step.WAIT),
    ([HELD], {"waits": 99.0}, Step.WAIT),
    ([HELD], {"own": 3}, Step.FLUSH),
    ([WAITING, HELD], {"own": 3}, Step.WAIT),
    ([HELD, UNKNOWN], {"own": 3}, Step.FLUSH),
    ([EMPTY, UNKNOWN], {"waits": 59.9}, Step.WAIT),
    ([EMPTY, UNKNOWN], {"waits": 60.1}, Step.FAIL),
    ([DEFERRED], {}, Step.END),
    ([DEFERRED], {"asked": (91.0, 95.9)}, Step.WAIT),
])
def test_a_drain_ends_when_every_nsqd_that_counts_has_said_that_it_is_empty(nsqds, change, step):
    """A question without an answer is never taken for that; it fails when patience has passed."""
    assert Bench(RULES, *nsqds, **change).decide() is step


@pytest.mark.parametrize("nsqds, change, step", [
    ([EMPTY], {}, Step.END),
    ([EMPTY, UNKNOWN], {}, Step.END),
    ([EMPTY, UNKNOWN], {"are_all_connected": False}, Step.WAIT),
    ([WAITING, UNKNOWN], {}, Step.WAIT),
    ([HELD, UNKNOWN], {}, Step.WAIT),
])
def test_a_silence_is_the_end_only_where_the_caller_allows_it(nsqds, change, step):
    assert Bench(ALLOWED, *nsqds).decide(**change) is step


def test_a_silence_lasts_while_every_connection_has_unused_rdy():
    """Not all at the same time: RDY may be dealt to them in turn."""
    bench = Bench(ALLOWED, EMPTY, UNKNOWN)
    bench.connections |= {"two": (0.0, False)}
    bench.wait(9)
    bench.answer(EMPTY, UNKNOWN)
    assert bench.decide() is Step.WAIT
    bench.connections = {"one": (0.0, False), "two": (0.0, True)}
    bench.wait(1.9)
    assert bench.decide() is Step.WAIT
    bench.wait(0.2)
    assert bench.decide() is Step.END
    bench.message(on="two")
    bench.wait(1.9)
    bench.connections["two"] = bench.connections["two"][0], False
    bench.answer(EMPTY, UNKNOWN)
    assert bench.decide() is Step.WAIT


def test_a_silence_is_no_end_where_an_answer_may_come():
    """From an nsqd that has answered before, or since something changed."""
    bench = Bench(ALLOWED, EMPTY, EMPTY)
    for _ in range(2):
        bench.answer(EMPTY, UNKNOWN)
        bench.wait(1)
    assert bench.decide() is Step.WAIT
    bench.answer(UNKNOWN, UNKNOWN)
    assert bench.decide() is Step.WAIT
    assert Bench(ALLOWED, EMPTY, UNKNOWN, asked=(91.0,)).decide() is Step.WAIT
    assert Bench(ALLOWED, EMPTY, UNKNOWN, own=1).decide() is Step.FLUSH
    bench = Bench(ALLOWED, EMPTY, UNKNOWN, waits=0)
    bench.connections["one"] = (0.0, False)
    bench.wait(60.1)
    assert bench.decide() is Step.FAIL


@pytest.mark.parametrize("in_flight, waits, step", [
    (3, 2.1, Step.END), (3, 1.9, Step.WAIT), (4, 9.0, Step.WAIT),
])
def test_a_loop_does_not_wait_for_what_it_holds_itself(in_flight, waits, step):
    held = HELD._replace(in_flight=in_flight)
    assert Bench(LOOP, held, own=3, waits=waits).decide() is step


def test_deferred_messages_are_waited_for_where_that_is_wished():
    assert Bench(DrainRules(wait_deferred=True), DEFERRED, waits=99.0).decide() is Step.WAIT


@pytest.mark.parametrize("change", [
    Bench.message, lambda bench: bench.message(on="two"),
    lambda bench: (bench.connections.clear(), bench.look()),
])
def test_an_answer_counts_until_something_changes(change):
    bench = Bench(RULES, EMPTY)
    change(bench)
    assert bench.decide() is Step.WAIT
    for _ in range(2):
        assert bench.decide() is Step.WAIT
        bench.wait(1)
        assert bench.answer(EMPTY)
        assert not bench.answer(EMPTY)  # the same answer
    assert bench.decide() is Step.END


def test_an_answer_before_or_after_an_outage_does_not_count():
    """An nsqd that answers again may have been restarted meanwhile."""
    bench = Bench(RULES, EMPTY)
    for nsqd, step in ((EMPTY, Step.END), (UNKNOWN, Step.WAIT), (UNKNOWN, Step.WAIT),
                       (EMPTY, Step.WAIT), (EMPTY, Step.END)):
        bench.wait(1)
        bench.answer(nsqd)
        assert bench.decide() is step


@pytest.mark.parametrize("bad", [UNKNOWN, WAITING])
def test_an_nsqd_is_in_the_way_from_its_first_bad_answer_or_the_last_message(bad):
    """Not from before: another consumer may have held messages for long."""
    bench = Bench(RULES, HELD, waits=500.0)
    assert bench.stuck() == 0
    for _ in range(2):
        bench.answer(bad)
        bench.wait(5)
    assert bench.stuck() == 10
    bench.connections["two"] = (bench.now - 50, True)  # a new connection
    bench.wait(20)
    assert bench.stuck() == 30 - 10 * (bad is WAITING)
    bench.message()
    bench.wait(5)
    assert bench.stuck() == 5
    bench.answer(EMPTY)
    assert bench.stuck() == 0


def test_messages_that_wait_are_expected_while_a_connection_has_rdy_to_spare():
    bench = Bench(RULES, WAITING, waits=7.0)
    bench.connections["one"] = (0.0, False)
    bench.wait(50)
    assert bench.stuck() == 7
    assert bench.with_patience(5).stuck() == ["a:1: 3 wait and do not arrive"]


def test_a_time_in_which_the_process_was_suspended_is_not_counted():
    bench = Bench(RULES, UNKNOWN, waits=0.0)
    bench.now += 900
    bench.look()
    assert bench.decision.quiet == 0.2 and bench.stuck() == 0
