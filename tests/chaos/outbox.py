"""Chaos for the outbox: relays, nsqd and PostgreSQL are killed while applications write.

At the end the table of rows says what must have arrived: each row at least once, nothing else, and
the messages of a key in their order.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import django.db
from django.db import connections, transaction

from examples.django_outbox.postgres import Postgres
from nsqclient import Config, Consumer, Message
from nsqclient.contrib.django import publish_in_transaction
from tests.chaos.ledger import Ledger
from tests.chaos.result import RunResult
from tests.support import django_settings
from tests.support.processes import CHECKOUT
from tests.support.servers.postgres import running_postgres
from tests.support.servers.real_servers import RealNsqd
from tests.support.waiting import wait_until

ALIAS = "postgres"
TOPIC = "outbox"
RELAYS = 2
WRITERS = 4
TARGETS = ("relay", "nsqd", "database")
#: Percentage of transactions that are rolled back.
_ROLLED_BACK = 20
#: Seconds in which the remaining messages must be published, and consumed.
_DRAIN = 300.0
_TABLES = ("CREATE TABLE facts (id text PRIMARY KEY)",
           "CREATE TABLE counters (key text PRIMARY KEY, n bigint)")


def misplaced(received: Iterable[str]) -> list[str]:
    """Return the messages of a key that came before an earlier one of it.

    A message is ``KEY:NUMBER:TRANSACTION``; repetitions do not count, nor does the key ``-``.
    """
    last: dict[str, int] = {}
    found = []
    for each in dict.fromkeys(received):
        key, number, _ = each.split(":")
        if key != "-":
            if int(number) < last.get(key, 0):
                found.append(f"out of order: {each} after number {last[key]}")
            last[key] = max(int(number), last.get(key, 0))
    return found


class _RolledBack(Exception):
    """A transaction is rolled back on purpose; has its fact."""


class Application:
    def __init__(self, seed: int, ledger: Ledger) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._rejected = ledger.rejected  # guarded by _lock, as below
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(f"{seed} {number}")))
            for number in range(WRITERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, rng: random.Random) -> None:
        try:
            for count in range(10**9):
                if self._over.wait(0.02):
                    break
                key = rng.choice([f"own{number}", "shared", "-"])
                try:
                    self._write(key, f"{number}.{count}", rng.randrange(100) < _ROLLED_BACK)
                except _RolledBack as exc:
                    with self._lock:
                        self._rejected.add(str(exc))
                except django.db.Error:  # the database was killed
                    connections[ALIAS].close()
        except Exception as exc:
            with self._lock:
                self.errors.append(f"a writer ended: {exc!r}")
        finally:
            connections.close_all()

    @staticmethod
    def _write(key: str, place: str, rolls_back: bool) -> None:
        with transaction.atomic(using=ALIAS):
            number = 0
            with connections[ALIAS].cursor() as cursor:
                if key != "-":
                    # It holds the row until the commit: transactions of a key follow one another.
                    cursor.execute("INSERT INTO counters VALUES (%s, 1) ON CONFLICT (key) DO"
                                   " UPDATE SET n = counters.n + 1 RETURNING n", [key])
                    [number] = cursor.fetchone()
                fact = f"{key}:{number}:{place}"
                publish_in_transaction(
                    TOPIC, fact.encode(), key=None if key == "-" else key, using=ALIAS)
                cursor.execute("INSERT INTO facts VALUES (%s)", [fact])
            if rolls_back:
                raise _RolledBack(fact)


class Relays:
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        self._started += 1
        path = self._folder / f"relay{self._started}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "nsq_relay", "--interval", "0.02",
                 "--batch-size", "20"], cwd=CHECKOUT, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)
        wait_until(lambda: b"Ctrl-C" in path.read_bytes() or process.poll() is not None, 60)
        assert process.poll() is None, path.read_text()

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> list[int]:
        for process in self._processes:
            process.terminate()
        return [process.wait(60) for process in self._processes]

    def close(self) -> None:
        while self._processes:
            self.kill(0)


def run(kills: int, folder: Path, seed: int) -> RunResult:
    django_settings.configure()
    result, ledger, rng = RunResult(seed), Ledger(folder), random.Random(seed)
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres())
        nsqd = RealNsqd(folder / "nsqd", mem_queue_size=0, sync_every=1)
        nsqd.start()
        stack.callback(nsqd.kill)
        connections[ALIAS].close()
        connections[ALIAS].settings_dict["HOST"] = database.host
        stack.callback(connections.close_all)
        environment = {
            **os.environ, "PYTHONPATH": str(CHECKOUT), "POSTGRES": database.host,
            "DJANGO_SETTINGS_MODULE": django_settings.__name__,
            "NSQD_TCP_ADDRESS": nsqd.tcp_address,
        }
        subprocess.run([sys.executable, "-m", "django", "migrate", "-v", "0"], cwd=CHECKOUT,
                       env=environment, check=True, timeout=120)
        with connections[ALIAS].cursor() as cursor:
            for table in _TABLES:
                cursor.execute(table)
        relays = Relays(folder, environment)
        stack.callback(relays.close)
        for _ in range(RELAYS):
            relays.start()
        application = Application(seed, ledger)
        application.start()
        try:
            targets = list(TARGETS) * kills
            rng.shuffle(targets)
            for target in targets:
                _kill(target, rng, relays, nsqd, database)
                result.faults[target] += 1
        finally:
            application.stop()
        connections[ALIAS].close()
        wait_until(lambda: not _rows("SELECT 1 FROM nsqclient_outbox LIMIT 1"), _DRAIN,
                   "the outbox is empty")
        statuses = relays.stop()
        ledger.stored.update(fact for [fact] in _rows("SELECT id FROM facts"))
        nsqd.stop()
        quick = RealNsqd(folder / "nsqd", mem_queue_size=0)  # the same data, less often synced
        quick.start()
        stack.callback(quick.kill)
        ledger.handled.update(consume(quick))
    result.take(ledger)
    result.errors = application.errors + misplaced(ledger.handled) + [
        f"a relay ended with status {status}" for status in statuses if status]
    return result


def _kill(
    target: str, rng: random.Random, relays: Relays, nsqd: RealNsqd, database: Postgres
) -> None:
    """After a moment kill one of them, and start it again after another one."""
    pause = threading.Event()
    pause.wait(rng.uniform(0.1, 0.8))
    if target == "relay":
        relays.kill(rng.randrange(RELAYS))
        relays.start()
    else:
        server = nsqd if target == "nsqd" else database
        server.kill()
        pause.wait(rng.uniform(0.0, 0.3))
        server.start()


def _rows(query: str) -> list[tuple[str, ...]]:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(query)
        found: list[tuple[str, ...]] = cursor.fetchall()
    return found


def consume(nsqd: RealNsqd) -> list[str]:
    received: list[str] = []

    def handle(message: Message) -> None:
        received.append(message.body.decode())

    def is_empty() -> bool:
        topic = nsqd.stats(TOPIC)
        channels = topic.get("channels") or [{"depth": 1, "in_flight_count": 0}]
        return not (topic["depth"] or channels[0]["depth"] or channels[0]["in_flight_count"])

    with Consumer(TOPIC, "audit", handle, nsqd_tcp_addresses=[nsqd.tcp_address],
                  config=Config(max_in_flight=100)):
        wait_until(is_empty, _DRAIN, "nsqd is empty")
    return received
