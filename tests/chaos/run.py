"""One run from start to end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.chaos import schedule
from tests.chaos.cluster import Cluster
from tests.chaos.ledger import Ledger
from tests.chaos.result import Losses, RunResult
from tests.chaos.watch import Watch, depths

#: The drain ends after so many seconds, though messages may be left.
DRAIN = 60.0


def run(folder: Path, seed: int, seconds: float, *, kill: bool = False) -> RunResult:
    """Inject faults into a cluster for so many seconds; return the result.

    ``folder`` must be empty; ledgers, logs and data stay there. Blocks for ``seconds``, the
    drain and a few seconds more.
    """
    events = schedule.build(seed, seconds, kill=kill)
    result = RunResult(seed, seconds, kill, events=len(events))
    cluster, ledger = Cluster(folder, seed), Ledger(folder)
    try:
        cluster.start()
        with Watch(cluster, ledger) as watch:
            perform(cluster, events, seconds)
            cluster.end_programs("producer")
            began = time.monotonic()
            result.left = drain(cluster)
            result.drain = round(time.monotonic() - began, 1)
        result.stuck, result.errors = watch.stuck, watch.errors + cluster.errors
        cluster.end_programs("consumer")
    finally:
        cluster.close()
    ledger.read()
    evaluate(result, cluster, ledger)
    return result


def perform(cluster: Cluster, events: list[schedule.Event], seconds: float) -> None:
    """Inject the faults, each on a thread of its own; then end every fault. Blocks: ``seconds``."""
    start = time.monotonic()
    clock = threading.Event()  # never set
    threads = []
    try:
        for event in events:
            clock.wait(max(0.0, start + event.at - time.monotonic()))
            threads.append(threading.Thread(target=cluster.perform, args=(event,)))
            threads[-1].start()
        clock.wait(max(0.0, start + seconds - time.monotonic()))
    finally:
        # Also when the run is interrupted: a fault that restarts its nsqd must not do so after
        # all servers were ended.
        cluster.is_over.set()
        for thread in threads:
            thread.join()
    cluster.heal()


def drain(cluster: Cluster) -> int:
    """Wait until every nsqd is empty; return how much is left."""
    pause = threading.Event()
    until = time.monotonic() + DRAIN
    while True:
        held = [depths(cluster, number) for number in range(len(cluster.nsqds))]
        left = sum(sum(one) for one in held if one is not None)
        if left == 0 and None not in held or time.monotonic() > until:
            return left
        pause.wait(0.25)


def evaluate(result: RunResult, cluster: Cluster, ledger: Ledger) -> None:
    """Fill in what the ledger and the proxies' record say."""
    handled = set(ledger.handled)
    record = cluster.record
    losses = Losses(record.stored, record.delivered, record.finished, cluster.stops)
    ours, at_stop, at_kill = losses.sort(ledger.stored - handled)
    result.attempted = len(ledger.attempted)
    result.stored = len(ledger.stored)
    result.rejected = len(ledger.rejected)
    result.unknown = len(ledger.unknown)
    result.unsettled = len(
        ledger.attempted - ledger.stored - ledger.rejected - ledger.unknown
    )
    result.handled = len(handled)
    result.duplicates = ledger.handled.total() - len(handled)
    result.worst_lag = ledger.worst_lag
    result.lost, result.nsqd_lost, result.kill_lost = ours, at_stop, len(at_kill)
    result.false_rejections = sorted(ledger.rejected & handled)
    result.late_calls, result.surprises = ledger.late_calls, ledger.surprises
    repairs = {name: state["repairs"] for name, state in ledger.states.items()}
    result.errors += [
        f"{name}: the watchdog repaired the flow {count} times"
        for name, count in repairs.items() if count
    ]
