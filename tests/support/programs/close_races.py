"""Closes a producer while eight threads use it, round after round: ADDRESS ROUNDS SEED.

Prints what the calls ended with, as a JSON object; exits with 1 when a call did not end.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from functools import partial

from nsqclient import ClosedError, Producer, PublishRejectedError, PublishUnknownError

LIMIT = 20.0
outcomes: Counter[str] = Counter()


def use(producer: Producer, kind: int, futures: list[Future]) -> None:
    """Call one method until the producer is closed."""
    pause = threading.Event()  # never set

    def publish_async() -> None:
        futures.append(producer.publish_async("events", b"x", timeout=5))

    def flush() -> None:
        publish_async()
        producer.flush(5)

    def ping() -> None:
        producer.ping(5)
        pause.wait(0.001)  # pings wait for nobody: they would leave the others no time

    publish = partial(producer.publish, "events", b"x", timeout=5)
    call = (publish, publish_async, flush, ping)[kind]
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        try:
            call()
            outcomes["stored" if kind == 0 else "returned"] += 1
        except ClosedError:
            outcomes["closed"] += 1
            return
        except (PublishUnknownError, PublishRejectedError) as exc:
            outcomes[type(exc).__name__] += 1
    outcomes["endless"] += 1


def play(address: str, chance: random.Random) -> None:
    """One round: start eight threads, close at some moment from several, look at all outcomes."""
    producer = Producer([address], max_pending=500)
    futures: list[Future] = []
    users = [
        threading.Thread(target=use, args=(producer, kind % 4, futures), daemon=True)
        for kind in range(8)
    ]
    closers = [threading.Thread(target=producer.close, args=(2,), daemon=True) for _ in range(2)]
    for thread in users:
        thread.start()
    threading.Event().wait(chance.random() * 0.03)  # the moment is what the rounds vary
    for thread in closers:
        thread.start()
    for thread in users + closers:
        thread.join(LIMIT)
        outcomes["hanging thread"] += thread.is_alive()
    for future in futures:
        if not future.done():
            outcomes["future without outcome"] += 1
        elif future.exception() is not None:
            outcomes[type(future.exception()).__name__] += 1
        else:
            outcomes["stored"] += 1
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("nsq-")]
    outcomes["thread left behind"] += len(left)


chance = random.Random(int(sys.argv[3]))
for _ in range(int(sys.argv[2])):
    play(sys.argv[1], chance)
print(json.dumps(+outcomes))
sys.exit(any(outcomes[name] for name in (
    "endless", "hanging thread", "future without outcome", "thread left behind",
)))
