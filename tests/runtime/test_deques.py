"""A copy of a deque that changes meanwhile."""

from collections import deque

from nsqclient.runtime.deques import copy_deque


def test_a_deque_that_changes_while_it_is_copied_is_copied_again():
    """As it may without the interpreter lock, and here by a finalizer."""
    class Changing(deque):
        changes = 2

        def __iter__(self):
            items = super().__iter__()
            if self.changes:
                self.changes -= 1
                self.append(3)
            return items

    assert copy_deque(Changing([1, 2])) == [1, 2, 3, 3]
