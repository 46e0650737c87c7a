"""Three nsqds behind proxies, two nsqlookupds, and the programs under test; and their faults."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos import schedule
from tests.chaos.program import CHANNEL, END_TIMEOUT, TOPIC
from tests.chaos.record import Record
from tests.chaos.schedule import Event
from tests.support.faults.proxy import FaultProxy
from tests.support.processes import CHECKOUT
from tests.support.servers.ports import free_port
from tests.support.servers.real_servers import RealNsqd, RealNsqlookupd

#: Mean seconds between two publishes of one thread.
PACE = 0.05
#: The faults of connections, by their names in the schedule.
_PROXY_FAULTS: dict[str, Callable[[FaultProxy, Event], None]] = {
    "deaf": lambda proxy, event: proxy.set_deaf(),
    "slow": lambda proxy, event: proxy.set_slow(400, 0.01),
    "refuse": lambda proxy, event: proxy.stop(),
    "cut": lambda proxy, event: proxy.cut_after(event.after, event.direction, reset=event.reset),
    "reset": lambda proxy, event: proxy.reset(),
    "drop": lambda proxy, event: proxy.drop(),
}


class Programs:
    """The processes of one role and number: one after the other, each with a ledger of its own."""

    def __init__(self, folder: Path, role: str, index: int, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._role = role
        self._settings = settings
        self._prefix = f"{role[0]}{index}"
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.name = ""  #: of the process that runs, or ran last: its ledger's name

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._count += 1
        self.name = f"{self._prefix}i{self._count}"
        settings = {
            **self._settings, "name": self.name,
            "ledger": str(self._folder / f"{self.name}.ledger"),
        }
        module = {"producer": "producing", "consumer": "consuming"}[self._role]
        with (self._folder / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"tests.chaos.{module}", json.dumps(settings)],
                cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=log, stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout: float) -> bool:
        process = self._process
        if process is None:
            return True
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        finally:
            assert process.stdin is not None
            process.stdin.close()
        return True


class Cluster:
    """All of it. ``start()``, ``perform(event)`` from any thread, ``finish()``, ``close()``."""

    #: The address that producers publish to.
    topics: tuple[str, ...] = (TOPIC,)

    def __init__(self, folder: Path, seed: int) -> None:
        self.record = Record()
        self.folder = folder
        self.hurt: set[tuple[str, int]] = set()  #: targets with a fault; replaced, never changed
        self.stops: list[tuple[int, float, bool]] = []  #: nsqd, when, whether it was killed
        self.faults: Counter[str] = Counter()  #: that were injected; guarded by _lock
        self.errors: list[str] = []  #: failures of the run itself or of a program
        self.is_over = threading.Event()  #: set: faults end at once
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, int], threading.Lock] = {}
        self.lookupds = [
            RealNsqlookupd(folder / f"lookupd{n}") for n in range(schedule.LOOKUPDS)
        ]
        self.nsqds: list[RealNsqd] = []
        self.proxies: list[FaultProxy] = []
        self._seed = seed
        self.programs: dict[tuple[str, int], Programs] = {}

    def start(self) -> None:
        self._start_servers()
        settings: dict[str, Any] = {
            "seed": self._seed, "pace": PACE, "topics": self.topics,
            "lookupds": [lookupd.http_address for lookupd in self.lookupds], "nsqds": [],
        }
        direct = {**settings, "nsqds": [proxy.address for proxy in self.proxies], "lookupds": []}
        for role, count in self._roles():
            for index in range(count):
                # One producer knows its nsqds, all others discover them.
                mine = direct if (role, index) == ("producer", 0) else settings
                programs = Programs(self.folder, role, index, mine)
                self.programs[role, index] = programs
                programs.start()

    def _roles(self) -> list[tuple[str, int]]:
        return [("consumer", schedule.CONSUMERS), ("producer", schedule.PRODUCERS)]

    def _start_servers(self) -> None:
        for lookupd in self.lookupds:
            lookupd.start()
        lookupds = [lookupd.tcp_address for lookupd in self.lookupds]
        for number in range(schedule.NSQDS):
            self._start_nsqd(number, lookupds)

    def _start_nsqd(self, number: int, lookupds: list[str]) -> None:
        tcp_address = f"127.0.0.1:{free_port()}"

        def tap(link: int, direction: str, data: bytes) -> None:
            self.record.take(number, link, direction, data)

        proxy = FaultProxy(tcp_address, tap).__enter__()
        self.proxies.append(proxy)
        nsqd = RealNsqd(
            self.folder / f"nsqd{number}", lookupd_tcp_addresses=lookupds,
            # The address that the nsqlookupds list leads through the proxy.
            broadcast_tcp_port=int(proxy.address.rpartition(":")[2]),
        )
        self.nsqds.append(nsqd)
        nsqd.tcp_address, nsqd.address = tcp_address, f"127.0.0.1:{free_port()}"
        nsqd.start()
        for topic in self.topics:
            nsqd.post("/topic/create", topic=topic)
            nsqd.post("/channel/create", topic=topic, channel=CHANNEL)

    def perform(self, event: Event) -> None:
        target = (event.target, event.number)
        with self._lock:
            lock = self._locks.setdefault(target, threading.Lock())
        with lock:
            if self.is_over.is_set():
                return
            self._mark(target, True)
            try:
                getattr(self, f"_{event.action}", self._disturb_proxy)(event)
                with self._lock:
                    self.faults[event.action] += 1
            except Exception as exc:
                self.errors.append(f"{event}: {exc!r}")
            finally:
                self._mark(target, False)

    def _mark(self, target: tuple[str, int], hurt: bool) -> None:
        with self._lock:
            self.hurt = self.hurt | {target} if hurt else self.hurt - {target}

    def _server(self, event: Event) -> RealNsqd | RealNsqlookupd:
        servers: list[Any] = self.nsqds if event.target == "nsqd" else self.lookupds
        server: RealNsqd | RealNsqlookupd = servers[event.number]
        return server

    def _restart(self, event: Event) -> None:
        self._stop_server(event, self._server(event).stop)

    def _kill(self, event: Event) -> None:
        if event.target in ("nsqd", "lookupd"):
            self._stop_server(event, self._server(event).kill)
            return
        programs = self.programs[event.target, event.number]
        programs.signal(signal.SIGKILL)
        programs.wait(10)
        self.is_over.wait(event.seconds)
        programs.start()

    def _stop_server(self, event: Event, stop: Callable[[], None]) -> None:
        if event.target == "nsqd":
            self.stops.append((event.number, time.monotonic(), event.action == "kill"))
        stop()
        self.is_over.wait(event.seconds)
        self._server(event).start()

    def _freeze(self, event: Event) -> None:
        if event.target in ("nsqd", "lookupd"):
            pid = self._server(event).pid
            send: Callable[[signal.Signals], None] = lambda number: os.kill(pid, number)
        else:
            send = self.programs[event.target, event.number].signal
        send(signal.SIGSTOP)
        try:
            self.is_over.wait(event.seconds)
        finally:
            send(signal.SIGCONT)

    def _roll(self, event: Event) -> None:
        programs = self.programs[event.target, event.number]
        self._end(programs)
        programs.start()

    def _end(self, programs: Programs) -> None:
        if programs.runs:
            programs.signal(signal.SIGTERM)
        else:
            self.errors.append(f"{programs.name} ended by itself: see its log")
        if not programs.wait(4 * END_TIMEOUT):
            self.errors.append(f"{programs.name} did not end after SIGTERM")

    def _disturb_proxy(self, event: Event) -> None:
        proxy = self.proxies[event.number]
        _PROXY_FAULTS[event.action](proxy, event)
        if event.seconds:  # else it is over at once
            self.is_over.wait(event.seconds)
            proxy.heal()

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()

    def end_programs(self, role: str) -> None:
        threads = [
            threading.Thread(target=self._end, args=(programs,))
            for (kind, _), programs in self.programs.items() if kind == role
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end_consumers(self) -> None:
        self.end_programs("consumer")

    def close(self) -> None:
        self.is_over.set()
        for programs in self.programs.values():
            if programs.runs:
                programs.signal(signal.SIGKILL)
            programs.wait(10)
        for proxy in self.proxies:
            proxy.close()
        for server in (*self.nsqds, *self.lookupds):
            server.kill()
