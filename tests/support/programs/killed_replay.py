"""``nsqclient dead_letters`` that kills itself with SIGKILL: ``POINT NUMBER WORDS...``.

POINT is where in the replay of a letter, NUMBER of which letter.
"""

import os
import signal
import sys

from nsqclient import DeadLetterDirectory, Message, Producer
from nsqclient.cli import main

point, left = sys.argv[1], int(sys.argv[2])


def pass_by(name):
    global left
    if name == point:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def around(cls, method, before, after):
    inner = getattr(cls, method)

    def outer(*args, **options):
        pass_by(before)
        result = inner(*args, **options)
        pass_by(after)
        return result

    setattr(cls, method, outer)


around(Producer, "publish", "before_publish", "after_publish")
around(Message, "finish", "before_remove", "after_remove")
around(DeadLetterDirectory, "delete", "before_remove", "after_remove")
sys.exit(main(["dead_letters", *sys.argv[3:]]))
