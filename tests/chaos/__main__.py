"""``python -m tests.chaos``: runs with seeds, one after the other; exits with 1 when one fails."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import run
from tests.support.exit_signals import exit_on_first_signal

_FIGURES = (
    "events", "stored", "rejected", "unknown", "unsettled", "handled", "duplicates", "drain",
    "lost", "nsqd_lost", "kill_lost", "late_calls", "stuck", "worst_lag",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seed", type=int, help="of the first run (default: from the clock, and printed)"
    )
    parser.add_argument("--runs", type=int, default=1, help="how many, with seeds that follow")
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults in each run")
    parser.add_argument("--kill", action="store_true", help="SIGKILL nsqds too")
    parser.add_argument("--results", type=Path, help="append the figures as JSON lines")
    parser.add_argument("--keep", type=Path, help="folder for ledgers and logs of failed runs")
    return parser.parse_args()


def main() -> int:
    """Run and report."""
    arguments = _arguments()
    exit_on_first_signal()
    first = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    failed = []
    for seed in range(first, first + arguments.runs):
        folder = Path(tempfile.mkdtemp(prefix="nsq-chaos-"))
        try:
            result = run(folder, seed, arguments.seconds, kill=arguments.kill)
            figures = result.summary()
            print(f"seed {seed}:", *(f"{name} {figures[name]}" for name in _FIGURES), flush=True)
            for line in result.failures:
                print(f"  FAILED {line}", flush=True)
            if arguments.results is not None:
                with arguments.results.open("a") as file:
                    file.write(json.dumps({**figures, "failures": result.failures}) + "\n")
            if result.failures:
                failed.append(seed)
                if arguments.keep is not None:
                    kept = arguments.keep / f"seed-{seed}{'-kill' if arguments.kill else ''}"
                    shutil.copytree(folder, kept, dirs_exist_ok=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{arguments.runs - len(failed)} of {arguments.runs} runs passed", end="")
    print(f"; failed seeds: {failed}" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
