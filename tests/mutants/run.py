"""Runs mutants: applies each change to a copy of the library, and expects its test to fail.

The checkout itself is never changed. A mutant whose test passes all the same has survived: the
promise has no test.
"""

import importlib.util
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import NamedTuple

#: What tests of the library need of a checkout.
COPIED = ("nsqclient", "pyspark_nsq", "tests", "examples", "setup.cfg")
#: Seconds that one test may take before it counts as hanging, and what a run has beside for its
#: start and its end.
TEST_LIMIT = 60.0
EXTRA = 60.0
#: Exit statuses of pytest.
_PASSED, _FAILED = 0, 1


class Mutant(NamedTuple):
    """One change that breaks a promise."""

    name: str
    promise: str  #: what does not hold any more
    old: str  #: stands there exactly once
    new: str
    test: str  #: that must fail: its node id, in the table its name
    hangs: bool = False  #: the test fails by hanging
    file: str = ""  #: from the root of the checkout


class Result(Enum):
    """What became of a mutant. Only the first is good."""

    KILLED = "killed"  #: its test has failed
    SURVIVED = "SURVIVED"  #: its test has passed
    HUNG = "HUNG"  #: its test did not end, which was not expected
    STALE = "STALE"  #: the text to replace is not there, or there twice
    BROKEN = "BROKEN"  #: pytest could not run the test


class Outcome(NamedTuple):
    """A mutant after its run."""

    mutant: Mutant
    result: Result
    seconds: float
    output: str  #: of pytest, or why it did not run


class StaleMutantError(Exception):
    """The text that a mutant replaces does not occur exactly once."""


def mutated(mutant: Mutant, source: str) -> str:
    """Return the changed source.

    Raises:
        StaleMutantError: the old text does not occur exactly once.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise StaleMutantError(
            f"{mutant.name}: {mutant.file} has {mutant.old!r} {count} times, not once: follow the"
            " change of the library in tests/mutants/table.py"
        )
    return source.replace(mutant.old, mutant.new)


class Copy:
    """A copy of the checkout in which tests run.

    Args:
        root: the checkout.
        folder: where the copy is made.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name,
                                ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).exists():
                shutil.copy(root / name, folder / name)
        if (root / ".cache").exists():  # the real servers
            (folder / ".cache").symlink_to(root / ".cache")

    def run_tests(
        self, tests: Sequence[str], *options: str, limit: float = TEST_LIMIT, count: int = 1
    ) -> tuple[int | None, str]:
        """Run tests; return pytest's exit status (None if they hung) and output."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             f"--timeout={limit:g}", *options, *tests],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), "NSQ_TEST_WAIT": "10"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit * count + EXTRA)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        # The plugin ends a test that hangs, and calls that a failure.
        hung = re.search(r"Timeout \(?>[\d.]+s\)? from pytest-timeout|^\++ Timeout \++$", output,
                         re.MULTILINE)
        return (None if hung else process.returncode), output

    def try_mutant(self, mutant: Mutant, limit: float = TEST_LIMIT) -> tuple[Result, str]:
        """Apply a mutant, run its test, and undo it."""
        path = self.folder / mutant.file
        source = path.read_text("utf-8")
        try:
            self._write(path, mutated(mutant, source))
        except StaleMutantError as exc:
            return Result.STALE, str(exc)
        try:
            status, output = self.run_tests([mutant.test], "-x", limit=limit)
        finally:
            self._write(path, source)
        if status is None:
            return (Result.KILLED if mutant.hangs else Result.HUNG), output
        if status == _PASSED:
            return Result.SURVIVED, output
        return (Result.KILLED if status == _FAILED else Result.BROKEN), output

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source, "utf-8")
        # Python compares compiled code by size and second, which may be the same.
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


def run(
    mutants: Sequence[Mutant],
    root: Path,
    folder: Path,
    jobs: int,
    report: Callable[[str], None],
    limit: float = TEST_LIMIT,
) -> list[Outcome] | None:
    """Run mutants; return what became of each, or None when their tests fail without them.

    Args:
        root: the checkout.
        folder: a new one, for ``jobs`` copies.
        report: takes a line of progress.
        limit: seconds for each test.
    """
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for number in range(jobs):
        copies.put(Copy(root, folder / str(number)))
    tests = list(dict.fromkeys(mutant.test for mutant in mutants))
    report(f"{len(tests)} tests without any mutant")
    copy = copies.get()
    options = ["-n", str(jobs)] if jobs > 1 else []
    status, output = copy.run_tests(tests, *options, limit=limit, count=len(tests))
    copies.put(copy)
    if status != _PASSED:
        report(f"they must pass, and do not:\n{output}")
        return None

    def try_one(mutant: Mutant) -> Outcome:
        mine = copies.get()
        try:
            began = time.monotonic()
            result, output = mine.try_mutant(mutant, limit)
            outcome = Outcome(mutant, result, time.monotonic() - began, output)
        finally:
            copies.put(mine)
        report(line(outcome))
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(try_one, mutants))


def line(outcome: Outcome) -> str:
    """Return one line about a mutant."""
    mutant = outcome.mutant
    return f"{outcome.result.value:<9} {outcome.seconds:5.1f} s  {mutant.name}: {mutant.promise}"


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return a table of the survivors, with pytest's output, and the totals."""
    outcomes = list(outcomes)
    alive = [outcome for outcome in outcomes if outcome.result is not Result.KILLED]
    lines = []
    for outcome in alive:
        lines += ["", line(outcome), f"    {outcome.mutant.test}",
                  *(f"    {text}" for text in outcome.output.splitlines()[-15:])]
    lines += ["", f"{len(outcomes) - len(alive)} of {len(outcomes)} mutants were killed"]
    return "\n".join(lines)
