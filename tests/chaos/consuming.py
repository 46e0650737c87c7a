"""The consumer under test: writes each id down before its FIN, and how it is twice a second."""

import json
import random
import threading
import time
from typing import Any

from nsqclient import Config, Consumer, Message
from tests.chaos.program import CHANNEL, MSG_TIMEOUT, TOPIC, Program, handle

_STATE_INTERVAL = 0.5

CONFIG = Config(
    msg_timeout=MSG_TIMEOUT, heartbeat_interval=1, max_attempts=0, lookupd_poll_interval=5,
    lookupd_poll_timeout=5, default_requeue_delay=0.2, max_backoff_duration=1,
    backoff_multiplier=0.1,
)


class Handler(Program):
    def __init__(self) -> None:
        super().__init__()
        settings = self.settings
        self._rng = random.Random(f"{settings['seed']} {settings['name']}")
        self._handled = 0
        self._last = time.monotonic()
        self._consumer = Consumer(
            TOPIC, CHANNEL, self._handle, lookupd_http_addresses=settings["lookupds"],
            max_in_flight=100, workers=4, config=CONFIG,
        )

    def run(self) -> None:
        self._consumer.start()
        threading.Thread(target=self._report, daemon=True).start()
        self.wait()
        self.end("Consumer.stop", self._consumer.stop)

    def _handle(self, message: Message) -> None:
        handle(message, self._rng, self.ledger, self.ending)
        self._handled += 1
        self._last = time.monotonic()

    def _report(self) -> None:
        while True:
            self.ledger.write("C", json.dumps(self._state()))
            if self.ending.wait(_STATE_INTERVAL):
                return

    def _state(self) -> dict[str, Any]:
        stats = self._consumer.stats()
        return {
            "at": time.monotonic(),
            "handled": self._handled,
            "last": self._last,
            "backoff": stats.backoff != "flowing",
            "paused": stats.is_paused,
            "connections": {conn.address: conn.rdy for conn in stats.connections},
        }


if __name__ == "__main__":
    Handler().run()
