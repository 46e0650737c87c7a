"""What programs under test share: settings, the handler, the end by signal, the lag meter."""

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

from nsqclient import Message, Requeue
from tests.chaos.ledger import LedgerWriter

TOPIC, CHANNEL = "chaos", "all"
#: Of the worker, and its msg_timeout in seconds.
WORKER_TOPICS = ("chaos-a", "chaos-b", "chaos-c")
MSG_TIMEOUT = 5.0
#: Seconds that stop() and close() get.
END_TIMEOUT = 5.0
_BEAT = 0.25
#: Messages in a thousand that fail, and that take longer than their timeout.
_FAILING, _SLOW = 3, 1


def handle(message: Message, rng: Random, ledger: LedgerWriter, ending: threading.Event) -> None:
    """Fail now and then, be late now and then; write the id down before its FIN."""
    chance = rng.randrange(1000)
    if chance < _FAILING:
        raise Requeue()
    if chance < _FAILING + _SLOW:
        ending.wait(MSG_TIMEOUT + 1)
    ledger.write("H", message.body.split(b" ")[0].decode())


class Program:
    """One process: settings as JSON in its first argument, ended by SIGTERM or the end of stdin."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = json.loads(sys.argv[1])
        self.ledger = LedgerWriter(self.settings["ledger"])
        self.ending = threading.Event()
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(threadName)s %(levelname)s %(message)s"
        )
        signal.signal(signal.SIGTERM, lambda *_: self.ending.set())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's business
        works = [self._watch_parent]
        if self.settings["name"].startswith("p"):  # a consumer may be frozen on purpose
            works.append(self._measure_lag)
        for work in works:
            threading.Thread(target=work, daemon=True).start()

    def wait(self) -> None:
        while not self.ending.wait(0.5):
            pass

    def end(self, what: str, call: Callable[[float], object]) -> None:
        """Make the last call, with its deadline, and note how long it took."""
        began = time.monotonic()
        result = call(END_TIMEOUT)
        took = time.monotonic() - began
        self.ledger.note_call(what, took - END_TIMEOUT)
        self.ledger.write("D", f"{what} {took:.3f} {result}")

    def _watch_parent(self) -> None:
        sys.stdin.read()
        self.ending.set()

    def _measure_lag(self) -> None:
        pause, worst = threading.Event(), 0.1
        while True:
            due = time.monotonic() + _BEAT
            pause.wait(_BEAT)
            lag = time.monotonic() - due
            if lag > worst:
                worst = lag
                self.ledger.write("T", f"{lag:.3f}")
