"""Ends without close(), where no thread can be started any more at exit: ADDRESS MODE COUNT.

Python 3.12.0 and 3.12.1 refuse threads at exit; here every version does. Mode "publish": COUNT
asynchronous publishes and the end. Mode "close": the same, and close() in a function at exit.
Mode "consume": a consumer that is stopped in a function at exit. Modes "late", "late_async" and
"loop": a publish, or a loop over messages, that begins in a function at exit.
"""

import atexit
import sys
import threading

from nsqclient import Consumer, NSQError, Producer

address, mode, count = sys.argv[1:]


def refuse(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")


if mode == "consume":
    received = threading.Semaphore(0)
    consumer = Consumer("events", "c", lambda message: received.release(),
                        nsqd_tcp_addresses=[address]).start()
    for _ in range(int(count)):
        assert received.acquire(timeout=20)
    atexit.register(lambda: print(bool(consumer.stop(5)), threading.active_count()))
elif mode == "loop":
    def loop():
        try:
            next(Consumer("events", "c", nsqd_tcp_addresses=[address]).messages(timeout=5))
        except NSQError as exc:
            print(type(exc).__name__, exc)

    atexit.register(loop)
elif mode in ("late", "late_async"):
    late = Producer([address])

    def publish():
        try:
            (late.publish if mode == "late" else late.publish_async)("events", b"x")
        except NSQError as exc:
            print(type(exc).__name__)
        finally:
            late.close(5)

    atexit.register(publish)
else:
    producer = Producer([address])
    for number in range(int(count)):
        producer.publish_async("events", b"%d" % number)
    if mode == "close":
        atexit.register(lambda: print(producer.close(10)))
threading.Thread.start = refuse
