"""OrderedHandling: what waits because a message of its partition is being handled."""

from __future__ import annotations

from types import SimpleNamespace

from nsqclient.consuming.ordered_handling import OrderedHandling


def message(partition, number):
    """As much of a message as is looked at here."""
    return SimpleNamespace(partition=partition, number=number)


class World(OrderedHandling):
    """While the first message is handled, others of its partition come."""

    def __init__(self, during):
        self.put_back = []
        super().__init__(
            None, None, 10, None, None, lambda: [], lambda messages: self.put_back.extend(messages)
        )
        self._during = during
        self.seen = None

    def admit(self, message):
        if message.number == 0:
            for number in range(1, 5):
                self.run(SimpleNamespace(partition=message.partition, number=number))
            self.seen = self._during(self)
        return None  # nothing more is done with it


def test_what_is_set_aside_can_be_looked_at():
    """It waits all the same; it is put back when its turn comes."""
    world = World(lambda world: [message.number for message in world.set_aside()])
    world.run(message(1, 0))
    assert world.seen == [1, 2, 3, 4]
    assert [message.number for message in world.put_back] == [1, 2, 3, 4]
    assert world.set_aside() == []


def test_what_is_set_aside_can_be_taken_out():
    """The others keep their order."""
    world = World(lambda world: world.take_aside(lambda message: message.number % 2 == 1))
    world.run(message(1, 0))
    assert [message.number for message in world.seen] == [1, 3]
    assert [message.number for message in world.put_back] == [2, 4]
