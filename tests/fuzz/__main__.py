"""``python -m tests.fuzz [cores|parsers|admin]``: mutates inputs, and prints how they ended."""

import argparse
import sys
import time
from collections import Counter

from tests.fuzz import admin, parsers
from tests.fuzz.run import Fuzz

#: How many inputs each has where ``--count`` does not say.
COUNTS = {"cores": 200_000, "parsers": 1_000_000, "admin": 20_000}


def fuzz(which: str, count: int, seed: int, first: int) -> Counter[str]:
    """Play ``count`` inputs; return how often each end came. Raises undocumented exceptions."""
    if which == "cores":
        return Fuzz(seed).run(count, first)
    if which == "admin":
        return admin.fuzz(count, seed)
    each = -(-count // len(parsers.TARGETS))
    return Counter({f"{name}, taken": parsers.fuzz(name, each, seed) for name in parsers.TARGETS})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("which", nargs="?", choices=COUNTS, help="of these alone")
    parser.add_argument("--count", type=int, help=f"inputs (default: {COUNTS})")
    parser.add_argument("--seed", type=int, default=1, help="the same inputs for the same (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first of the cores (0)")
    arguments = parser.parse_args()
    for which in [arguments.which] if arguments.which else COUNTS:
        began, count = time.monotonic(), arguments.count or COUNTS[which]
        ends = fuzz(which, count, arguments.seed, arguments.first)
        print(f"{which}, seed {arguments.seed}: {count} inputs in {time.monotonic() - began:.0f} s,"
              " no undocumented error", flush=True)
        for end, times in sorted(ends.items()):
            print(f"{times:>9} {end}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
