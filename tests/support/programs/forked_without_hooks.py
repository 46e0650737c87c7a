"""Forks as uWSGI does, without Python's fork hooks: ``ADDRESS KIND``.

A program of its own, which forks while its other threads are idle: without the hooks of the
interpreter, a thread that waits for the interpreter's lock leaves that lock unusable in the child.
"""

import contextlib
import ctypes
import faulthandler
import os
import sys
import threading
import traceback
from pathlib import Path

from nsqclient import Config, Consumer, Producer
from nsqclient.runtime import forking
from tests.support.waiting import wait_until

ADDRESS, KIND = sys.argv[1:]
LIMIT = 30.0


@contextlib.contextmanager
def prepared_producer():
    with Producer([ADDRESS]) as producer:
        producer.publish("events", b"parent")
        producer.publish_async("events", b"parent").result(LIMIT)
        before = producer.stats()

        def publish_async():
            return producer.publish_async("events", b"child").result(LIMIT)

        work = {
            "publish": lambda: producer.publish("events", b"child"),
            "publish_many": lambda: producer.publish_many("events", [b"child"]),
            "publish_async": publish_async,
            "ping": lambda: producer.ping(LIMIT),
            "close": lambda: producer.close(LIMIT),
        }[KIND]

        def child():
            errors = []

            def call():
                try:
                    work()
                except BaseException as exc:
                    errors.append(exc)

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not errors, errors

        yield child
        producer.publish("events", b"parent again")
        after = producer.stats()
        assert (after.rejected, after.unknown) == (0, 0), after
        assert after.connections == before.connections, (before, after)


@contextlib.contextmanager
def prepared_consumer():
    held = []

    def handle(message):
        message.enable_async()
        held.append(message)

    with Consumer("events", "c", handle, nsqd_tcp_addresses=[ADDRESS],
                  config=Config(msg_timeout=LIMIT)) as consumer:
        with Producer([ADDRESS]) as producer:
            producer.publish("events", b"parent")
        wait_until(lambda: held)

        def answer():
            held[0].finish()

        def start():
            assert consumer.healthy().reason == "not started"
            with consumer:
                wait_until(consumer.healthy)

        yield {"answer": answer, "stop": lambda: consumer.stop(5), "start": start}[KIND]
        assert len(consumer.stats().connections) == 1
        held[0].finish()
        wait_until(lambda: consumer.stats().total.finished == 1)


@contextlib.contextmanager
def prepared_reset():
    """The parent is in the middle of a reset of its own."""
    with Producer([ADDRESS]) as producer, forking._guards.setdefault(os.getpid(), forking.Lock()):
        yield lambda: producer.publish("events", b"child")


def thread_switches():
    """Return how often each other thread has stopped to wait; None for one that is running."""
    switches = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) == threading.get_native_id():
            continue
        # A thread may end in between.
        with contextlib.suppress(OSError):
            lines = (task / "status").read_text().splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            is_waiting = fields["State"].startswith("S")
            switches[task.name] = fields["voluntary_ctxt_switches"] if is_waiting else None
    return switches


def wait_for_idle_threads():
    """Wait for the end of the timer thread's next round: the one after it is a second away."""
    if threading.active_count() == 1:
        return
    seen = [thread_switches()]

    def changed():
        seen.append(thread_switches())
        return seen[-1] != seen[-2]

    def idle():
        return not changed() and None not in seen[-1].values()

    wait_until(changed)
    wait_until(idle)


def fork(work):
    pid = ctypes.PyDLL(None).fork()
    if not pid:
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


kinds = {"answer": prepared_consumer, "stop": prepared_consumer, "start": prepared_consumer,
         "reset": prepared_reset}
with kinds.get(KIND, prepared_producer)() as child:
    wait_for_idle_threads()
    statuses = [os.waitpid(pid, 0)[1] for pid in [fork(child) for _ in range(3)]]
    assert statuses == [0] * 3, statuses
