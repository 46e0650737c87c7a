"""The handlers of the worker: manage.py nsq_consume."""

import nsqclient
from shop.models import Receipt


@nsqclient.handler("orders", "receipts", workers=2)
def write_receipt(message: nsqclient.Message) -> None:
    """Write the receipt of an order. A message that comes twice writes it once."""
    Receipt.objects.get_or_create(reference=message.body.decode())
