"""``make hard NAME=mutants``: every promise of the table is broken once, and a test must notice."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.run import Result, run, summary
from tests.mutants.table import MUTANTS
from tests.support.docs.pages import ROOT


def main(argv: list[str] | None = None) -> int:
    """Run the mutants; return 0 when each was killed by its test."""
    parser = argparse.ArgumentParser(prog="make hard NAME=mutants", description=__doc__)
    parser.add_argument("-k", metavar="TEXT", default="", help="only those with this in the name")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true", help="print the table, run nothing")
    options = parser.parse_args(argv)
    mutants = [mutant for mutant in MUTANTS if options.k in mutant.name]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.promise}\n    {mutant.file}\n    {mutant.test}")
        return 0
    if not mutants:
        print(f"no mutant has {options.k!r} in its name", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        outcomes = run(mutants, ROOT, Path(folder), max(1, options.jobs),
                       lambda text: print(text, flush=True))
    if outcomes is None:
        return 1
    print(f"{summary(outcomes)}, in {time.monotonic() - began:.0f} s")
    return int(any(outcome.result is not Result.KILLED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
