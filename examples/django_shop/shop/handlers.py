"""The worker: manage.py nsq_consume shop.handlers.write_receipt --topic orders ..."""

import json

from nsqclient import Message
from shop.models import Receipt


def write_receipt(message: Message) -> None:
    """Write the receipt of an order. A message that comes twice writes it once."""
    order = json.loads(message.body)
    Receipt.objects.bulk_create(
        [Receipt(reference=order["reference"], text=f"{order['cents'] / 100:.2f} EUR")],
        ignore_conflicts=True,
    )
