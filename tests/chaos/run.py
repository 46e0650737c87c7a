"""One run of a cluster from start to end."""

import threading
import time

from tests.chaos.cluster import Cluster
from tests.chaos.ledger import Ledger
from tests.chaos.result import Losses, RunResult
from tests.chaos.schedule import Event
from tests.chaos.watch import Watch, depths

#: Seconds after which the drain ends, even if messages are left.
DRAIN = 60.0


def run(cluster: Cluster, events: list[Event], result: RunResult) -> RunResult:
    """Inject faults into a cluster for ``result.seconds``; fill in the result and return it."""
    ledger, record = Ledger(cluster.folder), cluster.record
    result.events = len(events)
    try:
        cluster.start()
        with Watch(cluster, ledger) as watch:
            perform(cluster, events, result.seconds)
            cluster.end_programs("producer")
            began = time.monotonic()
            result.left = drain(cluster)
            result.drain = round(time.monotonic() - began, 1)
        cluster.end_consumers()
    finally:
        cluster.close()
    ledger.read()
    result.take(ledger)
    result.faults = cluster.faults
    result.stuck, result.errors = watch.stuck, watch.errors + cluster.errors
    losses = Losses(record.stored, record.delivered, record.finished, cluster.stops)
    result.lost, result.nsqd_lost, at_kill = losses.sort(ledger.lost)
    result.kill_lost = len(at_kill)
    return result


def perform(cluster: Cluster, events: list[Event], seconds: float) -> None:
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
    pause = threading.Event()
    until = time.monotonic() + DRAIN
    while True:
        held = [depths(cluster, number) for number in range(len(cluster.nsqds))]
        left = sum(sum(one) for one in held if one is not None)
        if left == 0 and None not in held or time.monotonic() > until:
            return left
        pause.wait(0.25)
