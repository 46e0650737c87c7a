"""The producer under test: publishes in every way there is, and writes down each outcome."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from nsqclient import ClosedError, Producer, PublishRejectedError, PublishUnknownError
from tests.chaos.program import TOPIC, Program

#: Total seconds of each publish.
TIMEOUT = 3.0


class Publisher(Program):
    def __init__(self) -> None:
        super().__init__()
        settings = self.settings
        self._name = settings["name"]
        self._seed = settings["seed"]
        self._pace = settings["pace"]
        self._topics = itertools.cycle(settings.get("topics", [TOPIC]))
        self._numbers = itertools.count()
        self._producer = Producer(
            settings["nsqds"], lookupd_http_addresses=settings["lookupds"]
        )

    def run(self) -> None:
        ways = (self._publish, self._publish, self._publish_many, self._publish_async)
        threads = [
            threading.Thread(target=self._loop, args=(way, number))
            for number, way in enumerate(ways)
        ]
        for thread in threads:
            thread.start()
        self.wait()
        for thread in threads:
            thread.join()
        self.end("Producer.close", self._producer.close)

    def _loop(self, way: Callable[[random.Random], None], number: int) -> None:
        rng = random.Random(f"{self._seed} {self._name} {number}")
        while not self.ending.wait(rng.expovariate(1 / self._pace)):
            try:
                way(rng)
            except Exception as exc:  # an exception that publish() may not raise
                self.ledger.write("E", f"{way.__name__}: {exc!r}")

    def _body(self, rng: random.Random) -> bytes:
        head = f"{self._name}-{next(self._numbers)} "
        return head.encode() + b"x" * round(10 ** rng.uniform(0, 3.3))

    def _attempt(self, rng: random.Random, count: int) -> tuple[list[bytes], list[str]]:
        bodies = [self._body(rng) for _ in range(count)]
        ids = [body.split(b" ")[0].decode() for body in bodies]
        self.ledger.write("A", *ids)
        return bodies, ids

    def _settle(self, ids: list[str], call: Callable[[], object], began: float) -> None:
        try:
            call()
        except PublishUnknownError as exc:
            self.ledger.write("S", *ids[:exc.stored])
            self.ledger.write("U", *ids[exc.stored:])
        except PublishRejectedError as exc:
            self.ledger.write("S", *ids[:exc.stored])
            self.ledger.write("R", *ids[exc.stored:])
        except ClosedError:
            self.ledger.write("R", *ids)
        else:
            self.ledger.write("S", *ids)
        self.ledger.note_call("publish", time.monotonic() - began - TIMEOUT)

    def _publish(self, rng: random.Random) -> None:
        topic = next(self._topics)
        (body,), ids = self._attempt(rng, 1)
        self._settle(
            ids, lambda: self._producer.publish(topic, body, timeout=TIMEOUT), time.monotonic()
        )

    def _publish_many(self, rng: random.Random) -> None:
        topic = next(self._topics)
        bodies, ids = self._attempt(rng, rng.randint(1, 8))
        self._settle(
            ids, lambda: self._producer.publish_many(topic, bodies, timeout=TIMEOUT),
            time.monotonic(),
        )

    def _publish_async(self, rng: random.Random) -> None:
        topic = next(self._topics)
        bodies, ids = self._attempt(rng, rng.randint(1, 8))
        began = time.monotonic()
        futures: list[Future[None]] = [
            self._producer.publish_async(topic, body, timeout=TIMEOUT) for body in bodies
        ]
        for message_id, future in zip(ids, futures):
            # A Future that never gets its outcome is a surprise, not an outcome.
            self._settle([message_id], lambda: future.result(TIMEOUT + 20), began)


if __name__ == "__main__":
    Publisher().run()
