"""Fields of log records for formatters, and one line for an error with a known cause."""

import logging
import traceback

import pytest

from nsqclient import hints
from nsqclient import Config, Consumer, Message, NSQError, Producer, PublishError
from nsqclient.consumer.context import consumer_log, log_failure
from nsqclient.errors import (
    ConnectError, ConnectionLostError, InvalidTopicError, NSQHTTPStatusError,
    NSQHTTPTransportError, PublishNotSentError, as_cause,
)
from nsqclient.http import NsqdHTTP
from nsqclient.log_records import log_fields
from tests.support.processes import CHECKOUT
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

FIELDS = ("topic", "channel", "nsqd", "message_id")


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """Return the fields of a record, as a JSON formatter writes them."""
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def test_the_records_of_a_consumer_have_its_fields(nsqd_factory, caplog):
    caplog.set_level(logging.DEBUG, "nsqclient")
    nsqd, ids = nsqd_factory(), []
    for body in (b"fails", b"is given up", b"is good"):
        nsqd.publish("orders", body)

    def handle(message: Message) -> None:
        ids.append(message.id.decode())
        if message.body != b"is good":
            raise ValueError(message.body.decode())

    config = Config(max_attempts=1, default_requeue_delay=0, max_backoff_duration=0)
    with Consumer("orders", "mail", handle, nsqd_tcp_addresses=[nsqd.tcp_address], config=config):
        wait_until(lambda: caplog.text.count("giving up") == 2, 20, "given up")
    of_consumer = [each for each in caplog.records if each.name == "nsqclient.consumer"]
    assert len(of_consumer) > 5
    for record in of_consumer:
        assert fields_of(record).items() >= {"topic": "orders", "channel": "mail"}.items()
    for record in caplog.records:
        if nsqd.tcp_address in record.getMessage() and record.name != "nsqclient.devserver":
            assert fields_of(record)["nsqd"] == nsqd.tcp_address
        if "<Message " in record.getMessage():
            assert fields_of(record)["message_id"] in ids
    assert sum("message_id" in fields_of(record) for record in caplog.records) >= 4


def test_the_records_of_a_producer_name_the_nsqd(caplog):
    address = f"127.0.0.1:{free_port()}"
    with Producer([address]) as producer:
        with pytest.raises(PublishError):
            producer.publish("orders", b"x", timeout=0.05)
        record = wait_until(lambda: next(
            (each for each in caplog.records if "cannot publish to" in each.getMessage()), None))
    assert fields_of(record) == {"nsqd": address}


def test_fields_without_a_value_are_left_out():
    """A JSON formatter then omits them. An id that is not ASCII is logged as hexadecimal text."""
    assert log_fields() == {}
    message = Message(b"x", b"\xff" * 4, 1, 0, 0.0, 0.0, None)
    assert log_fields(topic="t", message=message) == {
        "topic": "t", "message_id": "ff" * 4, "attempts": 1}


# -- one line for a known cause


def from_cause(error: NSQError, cause: NSQError) -> NSQError:
    try:
        raise error from cause
    except NSQError as exc:
        return exc


REFUSED = ConnectError("a:1", "connection refused", hints.RUNS)


@pytest.mark.parametrize("error, said", [
    (REFUSED, "--tcp-address"),
    (from_cause(PublishNotSentError("no nsqd stored it"), REFUSED), "--tcp-address"),
    (NSQHTTPTransportError("http://a:1/ping", "host unknown", "correct the address"),
     "host unknown; correct the address"),
])
def test_a_failure_with_a_known_cause_is_one_line(error, said, caplog):
    """The traceback is logged at DEBUG. Both records have the fields."""
    caplog.set_level(logging.DEBUG, "nsqclient")
    log_failure(consumer_log("t", "c"), error, "handler failed for %r", "M",
                extra=log_fields(nsqd="a:1"))
    line, details = caplog.records
    assert line.levelname == "ERROR" and line.exc_info is None
    assert line.getMessage().startswith("t/c: handler failed for 'M': ")
    assert said in line.getMessage() and "\n" not in line.getMessage()
    assert details.levelname == "DEBUG" and details.exc_info[1] is error
    assert fields_of(line) == fields_of(details) == {"topic": "t", "channel": "c", "nsqd": "a:1"}


@pytest.mark.parametrize("error", [
    ValueError("x"), InvalidTopicError("a bad name"), ConnectionLostError("a:1", "closed"),
    NSQHTTPStatusError("http://a:1/pub", 400, "INVALID_TOPIC"),
])
def test_a_failure_of_another_kind_has_its_traceback(error, caplog):
    log_failure(consumer_log("t", "c"), error, "handler failed")
    (record,) = caplog.records
    assert record.exc_info[1] is error and record.getMessage() == "t/c: handler failed"


def _publish(address: str, **options: object) -> None:
    with Producer([address], config=Config(**options)) as producer:
        producer.publish("orders", b"x", timeout=0.5)


def _publish_found(lookupd: str) -> None:
    with Producer([], lookupd_http_addresses=[lookupd]) as producer:
        producer.publish("orders", b"x", timeout=5)


@pytest.mark.parametrize("fail", [
    lambda nsqd: _publish(nsqd.http_address),
    lambda nsqd: _publish(f"127.0.0.1:{free_port()}"),
    lambda nsqd: _publish(nsqd.tcp_address, tls_v1=True),
    lambda nsqd: NsqdHTTP(f"127.0.0.1:{free_port()}").ping(),
    lambda nsqd: NsqdHTTP(f"https://{nsqd.http_address}").ping(),
    lambda nsqd: NsqdHTTP(nsqd.tcp_address).ping(),
    lambda nsqd: _publish_found(nsqd.tcp_address),
], ids=["HTTP port", "refused", "no TLS", "HTTP refused", "HTTP TLS", "TCP port",
        "lookupd TCP port"])
def test_what_python_prints_of_an_error_is_short(fail, nsqd_factory, caplog):
    """Each cause is printed in one line. The tracebacks of causes are logged at DEBUG."""
    caplog.set_level(logging.DEBUG, "nsqclient")
    with pytest.raises(NSQError) as caught:
        fail(nsqd_factory())
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    assert error.__cause__ is not None
    assert printed.count("Traceback (most recent call last)") == 1
    assert len(printed.splitlines()) <= 40, printed
    assert any(
        record.levelno == logging.DEBUG and record.exc_info for record in caplog.records)


def test_the_context_of_a_cause_is_kept_and_not_printed():
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise OSError("outer")
    except OSError as exc:
        cause = as_cause(exc)
    assert isinstance(cause.__context__, KeyError) and cause.__suppress_context__
    assert cause.__traceback__ is None
    assert "inner" not in "".join(traceback.format_exception(cause))


def test_a_traceback_begins_with_the_code_of_the_user(caplog):
    """The library's frames above the handler say nothing about the failure."""
    source = "def call(handle):\n    handle()\n"
    scope = {}
    exec(compile(source, str(CHECKOUT / "nsqclient" / "caller.py"), "exec"), scope)

    def handle():
        raise ValueError("no total")

    try:
        scope["call"](handle)
    except ValueError as exc:
        error = exc.with_traceback(exc.__traceback__.tb_next)  # as in a worker
    log_failure(consumer_log("t", "c"), error, "the handler failed")
    trace = caplog.records[0].exc_info[2]
    assert [frame.name for frame in traceback.extract_tb(trace)] == ["handle"]
