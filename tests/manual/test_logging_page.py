"""The page on logging has every line that the package logs at INFO and above, and no other."""

from __future__ import annotations

import re

from tests.support.log_calls import LogCall, log_calls
from tests.support.pages import list_tables, read

PAGE = "docs/topics/logging.rst"
CALLS = {call for call in log_calls() if call.level != "DEBUG"}
#: (level, logger, line) of the table of life events, whose lines other tests make to happen.
LIFE = re.findall(r"^(INFO|WARNING|ERROR) +``(nsqclient\.\w+)`` +``(.+)``$", read(PAGE),
                  re.MULTILINE)
#: What stands for one ``%s``; the last one of a line may be left out.
WORD = r"(?:N [a-z ]+s|(?:(?:: |; )?[A-Z]+(?:[/;] ?[A-Z]+)*)?)"


def rows() -> list[tuple[str, str, str, str]]:
    """Return level, logger, line and advice of each row of the other tables."""
    loggers = re.findall(r"^``(nsqclient\.\w+)``:$", read(PAGE), re.MULTILINE)
    return [
        (level, logger, line.strip("`"), advice)
        for logger, table in zip(loggers, list_tables(PAGE), strict=True)
        for level, line, advice in table[1:]
    ]


def pattern(call: LogCall, word: str) -> str:
    """Return what matches a call's text with ``word`` for each of its arguments."""
    return word.join(map(re.escape, re.split(r"%[.\d]*[a-z]", call.text)))


def shows_advice(line: str, text: str) -> bool:
    """Tell whether a line of the life table has ADVICE where a call has the advice itself."""
    head, found, _ = line.partition("ADVICE")
    words = ".+".join(map(re.escape, re.split(r"\bN failures\b|\b[A-Z/]+\b", head)))
    return bool(found) and re.fullmatch(words + ".{15,}", text, re.DOTALL) is not None


def rows_of(call: LogCall) -> list[tuple[str, str, str]]:
    """Return the rows that show a call."""
    exact = [row[:3] for row in rows() if re.fullmatch(pattern(call, WORD), row[2])]
    life = [row for row in LIFE if call.text != "%s" and (
        re.fullmatch(pattern(call, ".*"), row[2]) or shows_advice(row[2], call.text))]
    return [row for row in exact + life if row[:2] == (call.level, call.logger)]


def test_every_call_stands_in_a_table_with_its_level() -> None:
    """Under its logger."""
    assert len(CALLS) > 100
    assert [call for call in CALLS if not rows_of(call)] == []


def test_every_row_is_a_call() -> None:
    """A line that nobody logs any more is taken off the page."""
    shown = {row for call in CALLS for row in rows_of(call)}
    assert [row for row in [*LIFE, *(row[:3] for row in rows())] if row not in shown] == []


def test_what_to_do_is_said() -> None:
    """Each row has it, and a warning or error has more than 'Nothing' alone."""
    assert [row for row in rows() if not row[3]] == []
    assert [row for row in rows() if row[0] != "INFO" and row[3] == "Nothing"] == []


def test_every_logger_is_in_the_first_table() -> None:
    """With what it is for."""
    listed = set(re.findall(r"^``(nsqclient\.\w+)``[, ]?", read(PAGE), re.MULTILINE))
    assert {call.logger for call in log_calls()} <= listed


def test_every_line_of_a_consumer_begins_with_its_topic_and_channel() -> None:
    """Whichever part of it writes the line; DEBUG too."""
    loggers = ("nsqclient.consumer", "nsqclient.batch")
    calls = [call for call in log_calls() if call.logger in loggers]
    assert len(calls) > 30
    assert [call for call in calls if not call.text.startswith("%s: ")] == []
    assert [call for call in calls if call.text.startswith("%s: %s/%s")] == []
