"""Which nsqds were silent for too long, by value."""

from nsqclient.consumer.watchdog import Observed, SilenceWatch


class World:
    def __init__(self):
        self.watch, self.now = SilenceWatch(2.0), 100.0
        self.state = dict(received=0, rdy=1, in_flight=0, msg_timeout=10.0)

    def found_at(self, seconds=60, **state):
        """Seconds until the nsqd is found silent; None if it is not within ``seconds``."""
        self.state.update(state)
        for passed in range(seconds + 1):
            if self.watch.look(self.now, {"a": Observed(**self.state)}):
                return passed
            self.now += 1
        return None


def test_silence_lasts_for_msg_timeout():
    assert World().found_at() == 10


def test_rdy_0_and_messages_in_flight_are_no_silence():
    world = World()
    assert world.found_at(rdy=0) is None
    assert world.found_at(rdy=1, in_flight=1) is None
    assert world.found_at(in_flight=0) == 9


def test_a_message_ends_the_silence():
    world = World()
    assert world.found_at(8) is None
    assert world.found_at(received=1) == 10


def test_time_in_which_the_process_did_not_run_is_no_silence():
    world = World()
    for _ in range(4):
        assert world.found_at(0) is None
        world.now += 70
    assert world.found_at(1) is None


def test_an_empty_channel_is_asked_for_again_after_msg_timeout():
    world = World()
    world.found_at()
    world.watch.reset("a")
    assert world.found_at() == 10
