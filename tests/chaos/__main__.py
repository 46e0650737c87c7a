"""``python -m tests.chaos``: runs with seeds, one after the other; exits with 1 when one fails."""

from __future__ import annotations

import argparse
import sys

from tests.chaos import schedule
from tests.chaos.cluster import Cluster
from tests.chaos.harness import SECONDS, Scenario, main
from tests.chaos.result import RunResult
from tests.chaos.run import run


def scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    """Producers and consumers under faults; with ``--kill`` nsqds are killed too."""
    seconds, kill = arguments.seconds, arguments.kill
    return [("cluster and kills" if kill else "cluster", lambda folder, seed: run(
        Cluster(folder, seed), schedule.build(seed, seconds, kill=kill),
        RunResult(seed, seconds)))]


if __name__ == "__main__":
    options = {**SECONDS, "--kill": {"action": "store_true", "help": "SIGKILL nsqds too"}}
    sys.exit(main("tests.chaos", __doc__, options, scenarios))
