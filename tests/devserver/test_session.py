"""The wake-up of a session's thread."""

import select

from nsqclient.devserver.session import Waker


def is_readable(waker: Waker) -> bool:
    """Whether poll() reports the waker's descriptor now."""
    poll = select.poll()
    poll.register(waker, select.POLLIN)
    return bool(poll.poll(0))


def test_wake_has_no_effect_before_arm():
    """A thread that does not wait for wake-ups is not disturbed."""
    waker = Waker()
    waker.wake()
    assert not is_readable(waker)
    waker.close()


def test_wake_after_arm_lasts_until_disarm():
    """Several wake-ups are one, and disarm() removes it."""
    waker = Waker()
    waker.arm()
    waker.wake()
    waker.wake()
    assert is_readable(waker)
    waker.disarm()
    assert not is_readable(waker)
    waker.arm()
    waker.wake()
    waker.disarm()
    waker.close()


def test_wake_after_close_does_nothing():
    """A thread may wake a session that has just ended."""
    waker = Waker()
    waker.arm()
    waker.close()
    waker.wake()
