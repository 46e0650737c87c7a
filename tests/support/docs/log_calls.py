"""Which lines the package logs: every call of a logger, read from the sources."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import CHECKOUT

#: Method -> level.
_LEVELS = {
    "debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR",
    "critical": "CRITICAL",
}
#: Adapters that put a prefix in front: (path begins with, variable, logger, the prefix).
_ADAPTERS = [
    ("nsqclient/cli/archive_files.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/archiver.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/nsq_to_file.py", "self._log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/cli/nsq_to_file.py", "log", "nsqclient.nsq_to_file", ""),
    ("nsqclient/consumer/", "self._log", "nsqclient.consumer", "%s: "),
    ("nsqclient/partitioned/consumer_", "self._log", "nsqclient.consumer", "%s: "),
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
def log_calls() -> tuple[LogCall, ...]:
    """Return every call of a logger in the package; several where the level is chosen."""
    return tuple(_log_calls())


def _log_calls() -> Iterator[LogCall]:
    for path in sorted((CHECKOUT / "nsqclient").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        place = path.relative_to(CHECKOUT).as_posix()
        adapters = {variable: (name, prefix) for start, variable, name, prefix in _ADAPTERS
                    if place.startswith(start)}
        loggers = adapters | {variable: (name, "") for variable, name in _loggers(tree).items()}
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.Lambda)):
                yield from _calls(path, function, loggers)


def _loggers(tree: ast.Module) -> dict[str, str]:
    """Return the module's loggers: variable -> name."""
    return {
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target):
        ast.literal_eval(node.value.args[0])
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "logging.getLogger"
    }


def _calls(
    path: Path, function: ast.AST, loggers: dict[str, tuple[str, str]]
) -> Iterator[LogCall]:
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
                          prefix + (ast.literal_eval(text) if _is_text(text) else "%s"))


def _is_text(node: ast.expr) -> bool:
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
