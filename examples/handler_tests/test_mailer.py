"""Its tests: most need no server, and one has all of it."""

from unittest.mock import Mock

from mailer import Mailer
from nsqclient import Consumer, Producer
from nsqclient.testing import handle, make_message

ORDER = b'{"number": 7, "customer": "ada@example.com", "total": 30}'


def test_the_customer_is_mailed():
    send, producer, message = Mock(), Mock(), make_message(ORDER)
    handle(Mailer(send, producer), message)
    send.assert_called_once_with("ada@example.com", "30 EUR")
    assert message.finished


def test_a_mail_server_that_is_away_is_tried_again_later():
    message = make_message(ORDER, attempts=3)
    handle(Mailer(Mock(side_effect=ConnectionError), Mock()), message)
    assert message.requeued.delay == 90


def test_an_order_that_cannot_be_read_is_a_failure():
    message = make_message(b"no JSON")
    handle(Mailer(Mock(), Mock()), message)
    assert message.requeued and isinstance(message.error, ValueError)


def test_with_a_server(nsqd, published):
    nsqd.publish("orders", ORDER)
    with Producer([nsqd.tcp_address]) as producer:
        consumer = Consumer("orders", "mail", Mailer(Mock(), producer),
                            nsqd_tcp_addresses=[nsqd.tcp_address])
        consumer.run_until_empty(nsqd_http_addresses=[nsqd.http_address])
    assert published.json("mails") == [{"order": 7}]
