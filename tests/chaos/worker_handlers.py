"""The handlers of the worker under test: each writes the id down before its FIN."""

import os
import random
import threading

import nsqclient
from nsqclient import Message
from tests.chaos import program
from tests.chaos.ledger import LedgerWriter

_ledger = LedgerWriter(f"{os.environ['CHAOS_LEDGERS']}/w{os.getpid()}.ledger")
_rng = random.Random(os.getpid())
_ending = threading.Event()  # never set


def handle(message: Message) -> None:
    """As the handler of a consumer."""
    program.handle(message, _rng, _ledger, _ending)


for _topic in program.WORKER_TOPICS:
    nsqclient.handler(_topic, program.CHANNEL, workers=2, max_in_flight=50)(handle)
