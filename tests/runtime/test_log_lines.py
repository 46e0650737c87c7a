"""Log lines whose number a peer decides."""

import logging

from nsqclient import discovery
from nsqclient.http.models import Producer
from nsqclient.runtime.log_lines import INTERVAL, MOST_LINES, LineLimit

logger = logging.getLogger("nsqclient.test_line_limit")


def test_lines_beyond_the_limit_are_at_debug_until_the_minute_is_over(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    limit = LineLimit(logger)
    levels = [limit.level(logging.WARNING) for _ in range(MOST_LINES + 3)]
    assert levels == [logging.WARNING] * MOST_LINES + [logging.DEBUG] * 3
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "more than 50 lines like the last one in a minute: further ones are at DEBUG")]
    now[0] += INTERVAL
    assert limit.level(logging.WARNING) == logging.WARNING


def test_thousands_of_unusable_entries_cause_few_lines(caplog, monkeypatch):
    """An nsqlookupd may list any number of them in each answer."""
    monkeypatch.setattr(discovery, "_unusable", LineLimit(discovery.logger))
    unusable = Producer("", "", "", 0, 0, "")
    assert discovery.usable("127.0.0.1:4161", [unusable] * 3000) == []
    assert len(caplog.records) == MOST_LINES + 1
