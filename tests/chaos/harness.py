"""How every scenario is run and reported: seeds, a folder for each run, figures and failures."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.result import RunResult
from tests.support.exit_signals import exit_on_first_signal

#: Its name, and what runs it in an empty folder with a seed.
Scenario = tuple[str, Callable[[Path, int], RunResult]]

#: Of the scenarios that end after a time.
SECONDS = {"--seconds": {"type": float, "default": 600.0, "help": "of faults in each run"}}
#: The most failures of a run that are printed.
_MOST_SHOWN = 50


def main(
    module: str, about: str | None, options: dict[str, dict[str, Any]],
    choose: Callable[[argparse.Namespace], list[Scenario]],
) -> int:
    """Run the scenarios that ``choose`` makes of the arguments; return 1 where one has failed.

    Args:
        options: of the command line, beside those of every scenario.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument(
        "--seed", type=int, help="of the first run (default: from the clock, and printed)"
    )
    parser.add_argument("--runs", type=int, default=1, help="how many, with seeds that follow")
    parser.add_argument("--results", type=Path, help="append the figures as JSON lines")
    parser.add_argument("--keep", type=Path, help="folder for ledgers and logs of failed runs")
    for flag, settings in options.items():
        parser.add_argument(flag, **settings)
    arguments = parser.parse_args()
    exit_on_first_signal()
    first = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    scenarios = choose(arguments)
    failed = []
    for seed in range(first, first + arguments.runs):
        for name, run in scenarios:
            if not _play(name, run, seed, arguments):
                failed.append(f"{name}, seed {seed}")
    count = arguments.runs * len(scenarios)
    print(f"{count - len(failed)} of {count} runs passed", *failed, sep="\n  FAILED ")
    return 1 if failed else 0


def _play(
    name: str, run: Callable[[Path, int], RunResult], seed: int, arguments: argparse.Namespace
) -> bool:
    """Run one scenario once; return whether it has passed."""
    folder = Path(tempfile.mkdtemp(prefix="nsq-chaos-"))
    try:
        result = run(folder, seed)
        figures = {"scenario": name, **result.summary()}
        shown = [f"{key} {value}" for key, value in figures.items() if value or key == "lost"]
        print(", ".join(shown), flush=True)
        for line in result.failures[:_MOST_SHOWN]:
            print(f"  FAILED {line}", flush=True)
        if arguments.results is not None:
            with arguments.results.open("a") as file:
                file.write(json.dumps({**figures, "failures": result.failures}) + "\n")
        if result.failures and arguments.keep is not None:
            kept = arguments.keep / f"{name.replace(' ', '-')}-seed-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
        return not result.failures
    finally:
        shutil.rmtree(folder, ignore_errors=True)
