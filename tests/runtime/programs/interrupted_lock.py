"""A signal handler raises COUNT times in a hot loop over ``with lock``; prints a JSON object."""

import json
import random
import signal
import sys
from collections import Counter

from nsqclient.runtime.lock import Lock

#: Longest time in seconds until the loop is interrupted.
_LONGEST = 0.0002


class Expired(Exception):
    """Raised by the signal handler."""


def main(count: int) -> None:
    """Interrupt the loop, and look at the lock each time."""
    outcomes = Counter({"raised": 0, "caught": 0, "left taken": 0})
    is_armed = False
    lock = Lock()

    def interrupt(signum: int, frame: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            outcomes["raised"] += 1
            raise Expired

    def loop() -> None:
        while is_armed:
            with lock:
                pass

    signal.signal(signal.SIGALRM, interrupt)
    while outcomes["raised"] < count:
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, random.random() * _LONGEST + 1e-6)
            loop()
        except Expired:
            outcomes["caught"] += 1
        if lock._is_owned():
            outcomes["left taken"] += 1
            lock.release()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(int(sys.argv[1]))
