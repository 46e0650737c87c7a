"""Reads the tables of log lines in ``docs/topics/logging.rst``."""

import re
from typing import NamedTuple

from tests.support.docs.pages import list_tables, read


class Row(NamedTuple):
    """One row of a table, and the logger that stands above the table."""

    level: str
    logger: str
    line: str
    meaning: str


def log_rows(page: str) -> list[Row]:
    """Return every row, in the order of the page."""
    return _rows(page, read(page))


def lifecycle_rows(page: str) -> list[Row]:
    """Return the rows above the heading "Lines that need an action"."""
    return _rows(page, read(page).partition("\nLines that need an action\n---")[0])


def _rows(page: str, text: str) -> list[Row]:
    loggers = re.findall(r"^``(nsqclient\.\w+)``:$", text, re.MULTILINE)
    return [
        Row(level, logger, line.strip("`"), meaning)
        for logger, table in zip(loggers, list_tables(page), strict=False)
        for level, line, meaning in table[1:]
    ]
