"""Log context: records of handlers have the fields of the message."""

from __future__ import annotations

import logging

from nsqclient import Consumer
from nsqclient.worker.log_context import LogContext

FIELDS = ("topic", "channel", "nsqd", "message_id", "attempts")


def fields_of(record: logging.LogRecord) -> tuple:
    """The fields that the filter sets."""
    return tuple(getattr(record, name) for name in FIELDS)


def test_records_of_a_handler_have_the_fields_of_its_message(nsqd, caplog):
    """Also those of libraries that it calls; outside of a handling they are empty."""
    caplog.handler.addFilter(LogContext.filter)
    logger, ids = logging.getLogger("shop"), []

    def handle(message):
        ids.append(message.id.decode())
        logger.warning("inside")

    nsqd.publish("orders", b"x")
    try:
        with Consumer("orders", "c", handle, nsqd_tcp_addresses=[nsqd.tcp_address],
                      middleware=[LogContext()]):
            nsqd.wait_until_empty("orders", "c")
        logger.warning("outside")
    finally:
        caplog.handler.removeFilter(LogContext.filter)
    found = {record.message: fields_of(record) for record in caplog.records}
    assert found["inside"] == ("orders", "c", nsqd.tcp_address, ids[0], 1)
    assert found["outside"] == ("", "", "", "", 0)


def test_a_record_keeps_fields_of_its_own():
    """What ``extra`` gave is not replaced."""
    record = logging.makeLogRecord({"topic": "mine"})
    assert LogContext.filter(record) is True
    assert fields_of(record) == ("mine", "", "", "", 0)
