"""What the error of a publish says: the address, and what to do."""

from __future__ import annotations

import pytest

from nsqclient import Producer, PublishNotSentError
from tests.support.servers.ports import free_port


def errors(address):
    """The texts of the errors of both kinds of publish."""
    for publish in (lambda producer: producer.publish("t", b"x", timeout=0.1),
                    lambda producer: producer.publish_async("t", b"x", timeout=0.1).result()):
        with Producer([address]) as producer, pytest.raises(PublishNotSentError) as caught:
            publish(producer)
        yield str(caught.value)


def test_an_nsqd_that_does_not_run_is_named():
    """With the flag that its address comes from."""
    address = f"127.0.0.1:{free_port()}"
    for text in errors(address):
        assert address in text and "see that nsqd runs" in text


def test_the_http_port_is_named(nsqd):
    """With the port that is meant."""
    for text in errors(nsqd.http_address):
        assert text.startswith(f"{nsqd.http_address}: the answer is HTTP")
        assert "give nsqd's --tcp-address (port 4150 by default)" in text
