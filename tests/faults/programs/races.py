"""Eight threads use a consumer and a producer and end them: ADDRESS ROUNDS SEED SWITCH_INTERVAL.

Prints the outcomes of each call as JSON; exits with 1 when a call hung or raised what no docs name.
"""

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from nsqclient import (
    ClosedError, Config, Consumer, Producer, PublishRejectedError, PublishUnknownError,
)

#: A round that takes longer hangs, or a thread is left: the watchdog prints all stacks and ends.
WATCHDOG = 90.0
THREADS, CALLS = 8, 12
_CONFIG = Config(heartbeat_interval=1, max_attempts=0, max_backoff_duration=0)

outcomes: Counter[str] = Counter()


def fork(consumer: Consumer, producer: Producer) -> None:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # should it hang, the parent sees the signal
        status = 1
        try:
            producer.publish("races", b"child", timeout=30)
            consumer.stop(2)
            status = 0 if producer.close(20) else 2
        except ClosedError:
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    outcomes[f"child {status}"] += 1


def calls(
    address: str, chance: random.Random, futures: list[Future[None]]
) -> list[tuple[str, Callable[[], object]]]:
    """The calls of one round's threads, by name, in a seeded order."""
    producer = Producer([address], config=_CONFIG)
    pause = threading.Event()
    consumer = Consumer(
        "races", "c", lambda message: pause.wait(chance.random() * 0.002),
        nsqd_tcp_addresses=[address], max_in_flight=5, workers=2, config=_CONFIG,
    )
    many: list[tuple[str, Callable[[], object]]] = [
        ("start", consumer.start),
        ("publish", lambda: producer.publish("races", b"x", timeout=5)),
        ("publish_many", lambda: producer.publish_many("races", [b"x", b"y"], timeout=5)),
        ("publish_async", lambda: futures.append(
            producer.publish_async("races", b"x", timeout=5))),
        ("flush", lambda: producer.flush(5)),
        ("pause", consumer.pause),
        ("resume", consumer.resume),
        ("set_max_in_flight", lambda: consumer.set_max_in_flight(chance.randrange(8))),
        ("stats", lambda: (consumer.stats(), producer.stats(), consumer.healthy())),
    ]
    ends: list[tuple[str, Callable[[], object]]] = [
        ("stop", lambda: consumer.stop(3)),
        ("close", lambda: producer.close(3)),
        ("fork", lambda: fork(consumer, producer)),
    ]
    chosen = [chance.choice(many) for _ in range(THREADS * CALLS - 8)]
    chosen += [ends[0], ends[0], ends[1], ends[1], ends[2]] + [many[0]] * 3
    chance.shuffle(chosen)
    return chosen + ends[:2]


def run(name: str, call: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        call()
        result = "ok"
    except (ClosedError, PublishRejectedError, PublishUnknownError) as exc:
        result = type(exc).__name__
    except Exception as exc:
        result = f"SURPRISE {exc!r}"
    if time.monotonic() - began > 10:
        result += " LATE"
    outcomes[f"{name} {result}"] += 1


def play(address: str, chance: random.Random) -> None:
    faulthandler.dump_traceback_later(WATCHDOG, exit=True)
    futures: list[Future[None]] = []
    queue = calls(address, chance, futures)
    last = [queue.pop(), queue.pop()]  # whatever the others did, both are ended

    def work(mine: list[tuple[str, Callable[[], object]]]) -> None:
        for name, call in mine:
            run(name, call)

    threads = [
        threading.Thread(target=work, args=(queue[n::THREADS],)) for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work(last)
    for future in futures:
        run("future", lambda: future.result(0))
    for thread in threading.enumerate():
        if thread.name.startswith("nsq-"):
            thread.join()  # stop() waits a moment for it, which a busy machine takes
    faulthandler.cancel_dump_traceback_later()


def main() -> int:
    address, rounds, seed, interval = sys.argv[1:]
    sys.setswitchinterval(float(interval))
    chance = random.Random(int(seed))
    for _ in range(int(rounds)):
        play(address, chance)
    print(json.dumps(+outcomes))
    bad = ("SURPRISE", "LATE", "child 1", "child 2", "child -")
    return int(any(mark in name for name in outcomes for mark in bad))


sys.exit(main())
