"""A signal handler raises again and again in calls of the library: ADDRESS MODE ERROR COUNT SEED.

Mode: what is called: publish, many, group (four other threads publish, too), async, flush,
messages, mixed. Error: the class that the handler raises. Prints as a JSON object how many were
raised, how many reached the caller, and what worked afterwards.
"""

from __future__ import annotations

import builtins
import faulthandler
import json
import logging
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from nsqclient import Config, Consumer, NSQError, Producer

#: Longest time in seconds until a call is interrupted.
_LONGEST = 0.003
_CONFIG = Config(publish_timeout=5, msg_timeout=1, max_attempts=0)


class Expired(Exception):
    """What a watchdog raises."""


ERRORS: dict[str, type[BaseException]] = {"Expired": Expired}

address, mode, error_name, count, seed = sys.argv[1:]
Error: type[BaseException] = ERRORS.get(error_name) or getattr(builtins, error_name)
rng = random.Random(int(seed))
outcomes: Counter[str] = Counter()
is_armed = False


def interrupt(signum: int, frame: object) -> None:
    global is_armed
    if is_armed:
        is_armed = False
        outcomes["raised"] += 1
        raise Error("from a signal handler")


def repeat(call: Callable[[], object]) -> None:
    """Call it while no interrupt came; a function, since 3.13 leaves jumps back out of a try."""
    while is_armed:
        call()


def run(call: Callable[[], object]) -> None:
    """Call it until an interrupt has reached us."""
    global is_armed
    try:
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, rng.random() * _LONGEST + 1e-6)
        repeat(call)
    except Error as exc:
        if str(exc) != "from a signal handler":
            outcomes[repr(exc)] += 1
        else:
            outcomes["caught"] += 1
    except NSQError as exc:
        outcomes[f"{type(exc).__name__}: {exc}"] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    is_armed = False


def on_unraisable(args: object) -> None:
    """Python itself drops an exception in a finalizer, and says so here."""
    outcomes["in a finalizer"] += 1


def main() -> None:
    """Interrupt the calls, then see what still works."""
    sys.unraisablehook = on_unraisable
    # The standard handlers drop an exception that comes while they write.
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())
    faulthandler.dump_traceback_later(280, exit=True)
    signal.signal(signal.SIGALRM, interrupt)
    producer = Producer([address], config=_CONFIG)
    producer.publish("interrupts", b"x")
    consumer = None
    if mode == "messages":
        consumer = Consumer(
            "interrupts", "ch", nsqd_tcp_addresses=[address], max_in_flight=20, config=_CONFIG
        )

    def take() -> None:
        for _ in consumer.messages(timeout=0.5):
            producer.publish_async("interrupts", b"x")
            if not is_armed:  # Python dropped the exception, in a finalizer; messages never end
                break

    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: producer.publish("interrupts", b"x"),
        "many": lambda: producer.publish_many("interrupts", [b"x"] * 5),
        "group": lambda: producer.publish("interrupts", b"x"),
        "async": lambda: producer.publish_async("interrupts", b"x").result(5),
        "flush": lambda: (producer.publish_async("interrupts", b"x"), producer.flush(5)),
        "messages": take,
        "ping": lambda: producer.ping(),
        "stats": lambda: producer.stats(),
    }
    over = False

    def publish_in_group() -> None:
        while not over:
            producer.publish("interrupts", b"y")

    others = [threading.Thread(target=publish_in_group) for _ in range(4 if mode == "group" else 0)]
    for other in others:
        other.start()
    names = list(calls) if mode == "mixed" else [mode]
    if consumer is None and "messages" in names:
        names.remove("messages")
    while outcomes["raised"] < int(count):
        run(calls[rng.choice(names)])
    over = True
    for other in others:
        other.join(20)
        outcomes["hung"] += other.is_alive()
    began = time.monotonic()

    def publish_afterwards() -> None:
        for _ in range(50):
            try:
                producer.publish("interrupts", b"x", timeout=5)
            except NSQError as exc:
                outcomes[f"afterwards {exc!r}"] += 1

    # One thread alone would not see what messages of several threads wait for.
    together = [threading.Thread(target=publish_afterwards) for _ in others]
    for thread in together:
        thread.start()
    publish_afterwards()
    for thread in together:
        thread.join()
    outcomes["async afterwards"] = producer.publish_async("interrupts", b"x").result(5) is None
    outcomes["flushed"] = producer.flush(5)
    if consumer is not None:
        received = 0
        for _ in consumer.messages(timeout=5):
            received += 1
            if received == 20:
                break
        outcomes["received afterwards"] = received
        outcomes["stopped"] = bool(consumer.stop(5))
    outcomes["closed"] = producer.close(5)
    outcomes["took"] = round(time.monotonic() - began)
    names = [thread.name for thread in threading.enumerate()]
    left = [name for name in names if name.startswith("nsq-")]
    print(json.dumps({**outcomes, "left": left}))


if __name__ == "__main__":
    main()
