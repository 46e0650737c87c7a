"""The handlers of the worker under test: each writes the id down before its FIN."""

from __future__ import annotations

import os
import random
import threading

import nsqclient
from nsqclient import Message, Requeue
from tests.chaos.ledger import LedgerWriter
from tests.chaos.program import CHANNEL, MSG_TIMEOUT, WORKER_TOPICS

#: Of a thousand messages so many fail, and so many take longer than their timeout.
_FAILING, _SLOW = 3, 1

_ledger = LedgerWriter(f"{os.environ['CHAOS_LEDGERS']}/w{os.getpid()}.ledger")
_rng = random.Random(os.getpid())


def handle(message: Message) -> None:
    """Fail now and then, be late now and then, else note the message."""
    chance = _rng.randrange(1000)
    if chance < _FAILING:
        raise Requeue()
    if chance < _FAILING + _SLOW:
        threading.Event().wait(MSG_TIMEOUT + 1)
    _ledger.write("H", message.body.split(b" ")[0].decode())


for _topic in WORKER_TOPICS:
    nsqclient.handler(_topic, CHANNEL, workers=2, max_in_flight=50)(handle)
