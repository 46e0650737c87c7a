"""Each line on the page on logging is logged by the package."""

import functools
import re

from tests.support.docs.log_calls import LogCall, log_calls
from tests.support.docs.log_rows import Row, lifecycle_rows, log_rows
from tests.support.docs.pages import read

PAGE = "docs/topics/logging.rst"
#: Other tests make these lines happen.
LIFE = lifecycle_rows(PAGE)
#: What stands for one ``%s``; the last one of a line may be left out.
WORD = r"(?:N [a-z ]+s|(?:(?:: |; )?[A-Z]+(?:[/;] ?[A-Z]+)*)?)"


@functools.cache
def rows() -> list[Row]:
    return log_rows(PAGE)[len(LIFE):]


def pattern(call: LogCall, word: str) -> str:
    """Return what matches a call's text with ``word`` for each of its arguments."""
    return word.join(map(re.escape, re.split(r"%[.\d]*[a-z]", call.text)))


def shows_hint(line: str, text: str) -> bool:
    """Return whether a line of the life table has HINT where a call has the hint itself."""
    head, found, _ = line.partition("HINT")
    words = ".+".join(map(re.escape, re.split(r"\bN failures\b|\b[A-Z/]+\b", head)))
    return bool(found) and re.fullmatch(words + ".{15,}", text, re.DOTALL) is not None


def rows_of(call: LogCall) -> list[Row]:
    exact = [row for row in rows() if re.fullmatch(pattern(call, WORD), row.line)]
    life = [row for row in LIFE if call.text != "%s" and (
        re.fullmatch(pattern(call, ".*"), row.line) or shows_hint(row.line, call.text))]
    return [row for row in exact + life if (row.level, row.logger) == (call.level, call.logger)]


def test_every_row_is_a_call_and_has_its_meaning() -> None:
    """A line that is no longer logged is no longer on the page."""
    calls = [call for call in log_calls() if call.level != "DEBUG"]
    assert len(calls) > 100
    shown = {row for call in calls for row in rows_of(call)}
    assert [row for row in log_rows(PAGE) if row not in shown] == []
    assert [row for row in log_rows(PAGE) if not row.meaning.endswith((".", "`."))] == []


def test_every_logger_is_in_the_first_table() -> None:
    listed = set(re.findall(r"^``(nsqclient\.\w+)``[, ]?", read(PAGE), re.MULTILINE))
    assert {call.logger for call in log_calls()} <= listed


def test_every_line_of_a_consumer_begins_with_its_topic_and_channel() -> None:
    loggers = ("nsqclient.consumer", "nsqclient.batch")
    calls = [call for call in log_calls() if call.logger in loggers]
    assert len(calls) > 30
    assert [call for call in calls if not call.text.startswith("%s: ")] == []
    assert [call for call in calls if call.text.startswith("%s: %s/%s")] == []
