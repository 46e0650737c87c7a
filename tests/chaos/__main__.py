"""``python -m tests.chaos SCENARIO``: runs with seeds, and the figures and failures of each."""

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.chaos import jobs, schedule, worker
from tests.chaos.cluster import Cluster
from tests.chaos.result import RunResult
from tests.chaos.run import run
from tests.support.exit_signals import exit_on_first_signal

#: Its name, and what runs it in an empty folder with a seed.
Scenario = tuple[str, Callable[[Path, int], RunResult]]

#: The most failures of a run that are printed.
_MOST_SHOWN = 50


def scenarios(given: argparse.Namespace) -> list[Scenario]:
    seconds, kill = given.seconds, given.kill
    if given.scenario == "cluster":
        return [("cluster and kills" if kill else "cluster", lambda folder, seed: run(
            Cluster(folder, seed), schedule.build(seed, seconds, kill=kill),
            RunResult(seed, seconds)))]
    if given.scenario == "worker":
        return [("worker", lambda folder, seed: run(
            worker.WorkerCluster(folder, seed), worker.build(seed, seconds),
            RunResult(seed, seconds)))]
    if given.scenario == "outbox":
        from tests.chaos import outbox  # needs Django

        return [("outbox", partial(outbox.run, given.kills))]
    logging.getLogger("nsqclient").addHandler(logging.NullHandler())
    chosen = [(job, kind) for job in given.only or jobs.JOBS for kind in jobs.JOBS[job]]
    faults = -(-given.faults // len(chosen))
    return [(f"{job} {kind}", partial(jobs.run, job, kind, faults)) for job, kind in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("scenario", choices=("cluster", "worker", "jobs", "outbox"))
    add("--seed", type=int, help="of the first run (default: from the clock, and printed)")
    add("--runs", type=int, default=1, help="how many, with seeds that follow")
    add("--results", type=Path, help="append the figures as JSON lines")
    add("--keep", type=Path, help="folder for ledgers and logs of failed runs")
    add("--seconds", type=float, default=600.0, help="of faults in each run: cluster, worker")
    add("--kill", action="store_true", help="SIGKILL nsqds too: cluster")
    add("--faults", type=int, default=100, help="over all kinds: jobs")
    add("--only", choices=jobs.JOBS, action="append", help="of these jobs: jobs")
    add("--kills", type=int, default=30, help="of relay, nsqd and database: outbox")
    given = parser.parse_args()
    exit_on_first_signal()
    first = int(time.time()) % 100_000 if given.seed is None else given.seed
    chosen = scenarios(given)
    failed = []
    for seed in range(first, first + given.runs):
        for name, play in chosen:
            if not _play(name, play, seed, given):
                failed.append(f"{name}, seed {seed}")
    count = given.runs * len(chosen)
    print(f"{count - len(failed)} of {count} runs passed", *failed, sep="\n  FAILED ")
    return 1 if failed else 0


def _play(
    name: str, play: Callable[[Path, int], RunResult], seed: int, given: argparse.Namespace
) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="nsq-chaos-"))
    try:
        result = play(folder, seed)
        figures = {"scenario": name, **result.summary()}
        shown = [f"{key} {value}" for key, value in figures.items() if value or key == "lost"]
        print(", ".join(shown), flush=True)
        for line in result.failures[:_MOST_SHOWN]:
            print(f"  FAILED {line}", flush=True)
        if given.results is not None:
            with given.results.open("a") as file:
                file.write(json.dumps({**figures, "failures": result.failures}) + "\n")
        if result.failures and given.keep is not None:
            kept = given.keep / f"{name.replace(' ', '-')}-seed-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
        return not result.failures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
