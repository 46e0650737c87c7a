"""``python -m tests.fuzz [--count 200000] [--seed 1]``: prints how the streams ended."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.run import Fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=200_000, help="streams (200000)")
    parser.add_argument("--seed", type=int, default=1, help="the same streams for the same (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first stream (0)")
    arguments = parser.parse_args()
    started = time.monotonic()
    ends = Fuzz(arguments.seed).run(arguments.count, arguments.first)
    print(f"seed {arguments.seed}: {arguments.count} streams in"
          f" {time.monotonic() - started:.0f} s, no undocumented error")
    for end, count in sorted(ends.items()):
        print(f"{count:>9} {end}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
