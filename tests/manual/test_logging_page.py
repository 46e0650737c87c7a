"""Each line on the page on logging is logged by the package."""

import ast
import functools
import re
from typing import NamedTuple

from tests.support.docs.log_rows import Row, lifecycle_rows, log_rows
from tests.support.docs.pages import read
from tests.support.processes import CHECKOUT

PAGE = "docs/topics/logging.rst"
#: Other tests make these lines happen.
LIFE = lifecycle_rows(PAGE)
#: What stands for one ``%s``; the last one of a line may be left out.
WORD = r"(?:N [a-z ]+s|(?:(?:: |; )?[A-Z]+(?:[/;] ?[A-Z]+)*)?)"


#: Method -> level.
_LEVELS = {
    "debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR",
    "critical": "CRITICAL",
}
#: Adapters that put a prefix in front: (path begins with, variable, logger, the prefix).
_ADAPTERS = [
    ("nsqclient/cli/tools/archive_files.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/tools/archiver.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/tools/nsq_to_file.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/tools/nsq_to_file.py", "log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/consumer/", "self._log", "nsqclient.consumer", "%s: "),
    ("nsqclient/partitioned/consumer/", "self._log", "nsqclient.consumer", "%s: "),
    ("nsqclient/consumer/core.py", "self.log", "nsqclient.consumer", "%s: "),
    ("nsqclient/consumer/batch.py", "self._log", "nsqclient.batch", "%s: "),
]


class LogCall(NamedTuple):
    """One call: where, to which logger, at which level, with which format."""

    where: str
    logger: str
    level: str
    text: str


@functools.cache
def log_calls():
    """Return every call of a logger in the package; several where the level is chosen."""
    found = []
    for path in sorted((CHECKOUT / "nsqclient").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        place = path.relative_to(CHECKOUT).as_posix()
        adapters = {variable: (name, prefix) for start, variable, name, prefix in _ADAPTERS
                    if place.startswith(start)}
        loggers = adapters | {variable: (name, "") for variable, name in _loggers(tree).items()}
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.Lambda)):
                found += _calls(path, function, loggers)
    return found


def _loggers(tree: ast.Module) -> dict[str, str]:
    """Return the module's loggers: variable -> name."""
    return {
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target):
        ast.literal_eval(node.value.args[0])
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "logging.getLogger"
    }


def _calls(path, function, loggers):
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("log_failure", "log_retry"):
            # log_failure(LOG, ERROR, TEXT, ...)
            logger, prefix = loggers[ast.unparse(node.args[0])]
            level, end = ("ERROR", "") if node.func.id == "log_failure" else ("WARNING", ": %s")
            yield LogCall(f"{path.relative_to(CHECKOUT)}:{node.lineno}", logger, level,
                          prefix + ast.literal_eval(node.args[2]) + end)
        if not isinstance(node.func, ast.Attribute):
            continue
        method = node.func.attr
        if method not in {*_LEVELS, "log"}:
            continue
        name = ast.unparse(node.func.value)
        if name not in loggers:
            continue
        levels, text = {_LEVELS.get(method, "")}, node.args[0]
        if method == "log":
            levels, text = _chosen(node.args[0], function), node.args[1]
        for level in levels:
            logger, prefix = loggers[name]
            yield LogCall(f"{path.relative_to(CHECKOUT)}:{node.lineno}", logger, level,
                          prefix + (ast.literal_eval(text) if is_text(text) else "%s"))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _chosen(level: ast.expr, function: ast.AST) -> set[str]:
    """Return the levels between which an expression, or what is assigned to a name, chooses."""
    found: list[ast.AST] = [level]
    if isinstance(level, ast.Name):
        found = [node.value for node in ast.walk(function)
                 if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == level.id]
    names = {
        node.attr for value in found for node in ast.walk(value)
        if isinstance(node, ast.Attribute) and node.attr in _LEVELS.values()
    }
    assert names, ast.unparse(level)
    return names


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
