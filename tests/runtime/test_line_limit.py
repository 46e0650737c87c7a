"""Log lines whose number a peer decides."""

from __future__ import annotations

import logging

from nsqclient import discovery
from nsqclient.consuming.life_log import LifeLog
from nsqclient.errors import ConnectError
from nsqclient.http.answers import Producer
from nsqclient.runtime.line_limit import INTERVAL, MOST_LINES, LineLimit

logger = logging.getLogger("nsqclient.test_line_limit")


def test_lines_beyond_the_limit_are_at_debug_until_the_minute_is_over(caplog):
    """One line says so."""
    now = [1000.0]
    limit = LineLimit(logger, lambda: now[0])
    levels = [limit.level(logging.WARNING) for _ in range(MOST_LINES + 3)]
    assert levels == [logging.WARNING] * MOST_LINES + [logging.DEBUG] * 3
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "over 50 lines like the last one in a minute: further ones are at DEBUG")]
    now[0] += INTERVAL
    assert limit.level(logging.WARNING) == logging.WARNING


def test_thousands_of_listed_addresses_cause_few_lines(caplog):
    """Neither when they are new nor when their dials fail."""
    caplog.set_level(logging.INFO)
    log = LifeLog("t", "c")
    for port in range(3000):
        log.discovered(f"127.0.0.1:{port}", "127.0.0.1:4161")
        error = ConnectError(f"127.0.0.1:{port}", "refused")
        log.cannot_connect(f"127.0.0.1:{port}", error, is_repeated=True)
    assert len(caplog.records) == 2 * (MOST_LINES + 1)


def test_thousands_of_unusable_entries_cause_few_lines(caplog, monkeypatch):
    """A nsqlookupd may list any number of them in each answer."""
    monkeypatch.setattr(discovery, "_unusable", LineLimit(discovery.logger))
    unusable = Producer("", "", "", 0, 0, "", "", "")
    assert discovery._usable("127.0.0.1:4161", [unusable] * 3000) == []
    assert len(caplog.records) == MOST_LINES + 1
