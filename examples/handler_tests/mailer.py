"""A handler: mails the customer of an order, and publishes that it did."""

from nsqclient import Message, Producer, Requeue


class Mailer:
    """Calls ``send(to, text)``, which raises ConnectionError while the mail server is away."""

    def __init__(self, send, producer: Producer) -> None:
        self._send, self._producer = send, producer

    def __call__(self, message: Message) -> None:
        order = message.json()
        try:
            self._send(order["customer"], f"{order['total']} EUR")
        except ConnectionError:
            raise Requeue(delay=30 * message.attempts) from None
        self._producer.publish_json("mails", {"order": order["number"]})
