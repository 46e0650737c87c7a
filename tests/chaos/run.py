"""One run from start to end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.chaos import schedule
from tests.chaos.cluster import Cluster
from tests.chaos.ledger import Ledger
from tests.chaos.verdict import Losses, Verdict
from tests.chaos.watch import Watch, depths

#: The verdict is taken after so many seconds, though something may be left.
DRAIN = 60.0


def run(folder: Path, seed: int, seconds: float, *, kill: bool = False) -> Verdict:
    """Hurt a cluster for so many seconds; return what was lost.

    ``folder`` must be empty; ledgers, logs and data stay there. Blocks for ``seconds``, the
    drain and a few seconds more.
    """
    events = schedule.build(seed, seconds, kill=kill)
    verdict = Verdict(seed, seconds, kill, events=len(events))
    cluster, ledger = Cluster(folder, seed), Ledger(folder)
    try:
        cluster.start()
        with Watch(cluster, ledger) as watch:
            _perform(cluster, events, seconds)
            cluster.end_programs("producer")
            began = time.monotonic()
            verdict.left = _drain(cluster)
            verdict.drain = round(time.monotonic() - began, 1)
        verdict.stuck, verdict.errors = watch.stuck, watch.errors + cluster.errors
        cluster.end_programs("consumer")
    finally:
        cluster.close()
    ledger.read()
    _judge(verdict, cluster, ledger)
    return verdict


def _perform(cluster: Cluster, events: list[schedule.Event], seconds: float) -> None:
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
        # Also when the run is broken off: one that starts its nsqd again must not do so after
        # all were ended.
        cluster.is_over.set()
        for thread in threads:
            thread.join()
    cluster.heal()


def _drain(cluster: Cluster) -> int:
    """Wait until every nsqd is empty; return how much is left."""
    pause = threading.Event()
    until = time.monotonic() + DRAIN
    while True:
        held = [depths(cluster, number) for number in range(len(cluster.nsqds))]
        left = sum(sum(one) for one in held if one is not None)
        if left == 0 and None not in held or time.monotonic() > until:
            return left
        pause.wait(0.25)


def _judge(verdict: Verdict, cluster: Cluster, ledger: Ledger) -> None:
    handled = set(ledger.handled)
    record = cluster.record
    losses = Losses(record.stored, record.delivered, record.finished, cluster.stops)
    ours, at_stop, at_kill = losses.sort(ledger.stored - handled)
    verdict.attempted = len(ledger.attempted)
    verdict.stored = len(ledger.stored)
    verdict.rejected = len(ledger.rejected)
    verdict.unknown = len(ledger.unknown)
    verdict.unsettled = len(
        ledger.attempted - ledger.stored - ledger.rejected - ledger.unknown
    )
    verdict.handled = len(handled)
    verdict.duplicates = ledger.handled.total() - len(handled)
    verdict.worst_lag = ledger.worst_lag
    verdict.lost, verdict.nsqd_lost, verdict.kill_lost = ours, at_stop, len(at_kill)
    verdict.false_rejections = sorted(ledger.rejected & handled)
    verdict.late_calls, verdict.surprises = ledger.late_calls, ledger.surprises
    repairs = {name: state["repairs"] for name, state in ledger.states.items()}
    verdict.errors += [
        f"{name}: the watchdog repaired the flow {count} times"
        for name, count in repairs.items() if count
    ]
