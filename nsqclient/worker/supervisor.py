"""``Supervisor``: runs several processes of a worker, and replaces processes that end.

It does not import the user's code: each child runs the same command line.

- The first child starts alone. If it fails before it consumes, the worker ends with its status.
- A child that ends, or has not reported for ``hang_timeout``, is replaced (``RestartPolicy``).
- SIGTERM and SIGINT are forwarded as SIGTERM. A child that outlives its ``stop_timeout`` by some
  seconds is killed. A second signal kills all children immediately.
- SIGHUP replaces the children one by one. The old child stops when the new one is healthy, or has
  run for some seconds. If the new child fails, the old ones keep running.
- With ``--reload`` all children restart when a source file changes. A child that failed is not
  restarted before the next change.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nsqclient.runtime.process_signals import Second, Signals
from nsqclient.worker.lifeline import Child, current_folder, spawn
from nsqclient.worker.status_server import ProcessState

logger: logging.Logger = logging.getLogger("nsqclient.worker")

#: Exit statuses: a child failed or was killed; the command line is wrong; children die at once.
FAILED, USAGE, CHILDREN_DIE = 1, 2, 3
#: Seconds beyond its stop_timeout after which a child is killed.
_GRACE = 5.0
#: Seconds within which a successor must consume.
_START_TIMEOUT = 60.0
#: Seconds after which an unhealthy successor takes over: the nsqds may be down for both.
_SETTLE_TIMEOUT = 10.0
_TICK = 0.5
#: Longer lines of a child are not reports.
_LONGEST_REPORT = 16 * 2**20
#: Seconds without a pass after which the loop counts as stuck.
_STUCK = 10.0
#: Seconds that handlers have to finish when code has changed.
_RELOAD_TIMEOUT = 3.0
#: A child that lives for fewer seconds has died at once.
_AT_ONCE = 5.0
#: Seconds of life that reset the pauses.
_GOOD_LIFE = 60.0
MOST_DEATHS = 5
#: Seconds before a start, doubled with each death in a row, and the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Maximum number of seconds that one check adds to the silence of a child.
_LONGEST_LOOK = 1.0


class RestartPolicy:
    """Counts the deaths of one child and its successors."""

    def __init__(self) -> None:
        self.deaths: int = 0  #: deaths soon after the start, in a row
        self._pauses = 0  # in a row

    def on_death(self, lived: float, has_started: bool) -> float | None:
        """Return the seconds until the next start; None: give up. ``has_started``: it has consumed.
        """
        if has_started and lived >= _AT_ONCE:
            self.deaths = 0
            if lived >= _GOOD_LIFE:
                self._pauses = 0
                return 0.0
        else:
            self.deaths += 1
            if self.deaths >= MOST_DEATHS:
                return None
        self._pauses += 1
        return min(_FIRST_PAUSE * 2.0 ** min(self._pauses - 1, 16), _LONGEST_PAUSE)


_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


class SourceWatch:
    """The source files of loaded modules and of a folder, without virtual environments."""

    def __init__(self, folder: Path) -> None:
        here = os.getcwd()
        # The current folder may be a symbolic link that a deployment changes.
        self._folder = os.path.join(
            current_folder(), folder.relative_to(here)) if folder.is_relative_to(here) else folder
        # Taken once: modules that this process imports later (as rglob does) are not changes.
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self._loaded = [str(path) for path in loaded if path]
        self._files = self._scan()

    def changed(self) -> str:
        """Return a file that has changed since the last call, or empty."""
        former, self._files = self._files, self._scan()
        return next((path for path, at in self._files.items() if former.get(path) != at), "")

    def _scan(self) -> dict[str, int]:
        found = {}
        for path in [*self._loaded, *self._paths()]:
            try:
                found[path] = os.stat(path).st_mtime_ns
            except OSError:
                continue  # removed just now, or inside of a zip file
        return found

    def _paths(self) -> Iterator[str]:
        for parent, folders, names in os.walk(self._folder):
            if "pyvenv.cfg" in names:
                folders.clear()
                continue
            folders[:] = (
                name for name in folders if name not in _SKIPPED and not name.startswith("."))
            yield from (os.path.join(parent, name) for name in names if name.endswith(".py"))


class _Process:
    def __init__(self, child: Child, now: float) -> None:
        self.child = child
        self.pid = child.process.pid
        self.began = now
        self.started_at: float | None = None  # it has imported all, and begun to consume
        self.is_leaving = False  # it was asked to stop
        self.kill_at: float | None = None
        self.heard = now
        self.silent_for = 0.0  # without the time that the supervisor was suspended
        self.consumers: Mapping[str, tuple[bool, str]] = {}
        self.metrics: object = None
        self._buffer = b""

    @property
    def is_started(self) -> bool:
        return self.started_at is not None

    def can_take_over(self, now: float) -> bool:
        """True if this child is healthy, or had time to become healthy."""
        if self.started_at is None:
            return False
        is_healthy = all(healthy for healthy, _ in self.consumers.values())
        return is_healthy or now - self.started_at >= _SETTLE_TIMEOUT

    def look(self, elapsed: float) -> None:
        """Add to the silence of the child; only a second after the supervisor was suspended."""
        self.silent_for += min(elapsed, _LONGEST_LOOK)

    def signal(self, number: int) -> None:
        self.child.process.send_signal(number)

    def read(self, now: float) -> bool:
        """Read the reports; return False once the child has closed its end."""
        try:
            data = self.child.socket.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST_REPORT:
            self._buffer = b""
        for line in lines:
            try:
                state = json.loads(line)
                self.consumers = {
                    place: (bool(healthy), str(reason))
                    for place, (healthy, reason) in state.get("consumers", {}).items()
                }
                self.metrics = state.get("metrics")
            except (ValueError, AttributeError, TypeError):
                continue  # written by a handler into a descriptor that is not its own
            self.heard = now
            self.silent_for = 0.0
            if self.started_at is None:
                self.started_at = now
        return bool(data)


class _Slot:
    """One running process, and its successor during a replacement."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.policy = RestartPolicy()
        self.current: _Process | None = None
        self.successor: _Process | None = None
        self.start_at: float | None = None


class Supervisor:
    """Runs ``processes`` children until a signal.

    Args:
        stop_timeout: seconds for the handlers of a child at its end.
        hang_timeout: seconds without a report after which a child is killed; 0: never.
        sources: files to watch; may be None.

    Lifecycle: ``run()`` once, in the main thread. Threads: ``states`` and ``is_live`` from any.
    """

    def __init__(
        self,
        processes: int,
        stop_timeout: float,
        hang_timeout: float = 0.0,
        sources: SourceWatch | None = None,
    ) -> None:
        self._slots = [_Slot(number) for number in range(1, processes + 1)]
        self._stop_timeout = stop_timeout
        self._hang_timeout = hang_timeout
        self._sources = sources
        self._folder = current_folder()
        self._next_look = 0.0  # when to look at the source files again
        self._has_changed = False  # a source file has changed in this run
        self._is_restarting = False  # all children stop, and then the first one starts
        self._selector = selectors.DefaultSelector()
        self._signals = Signals(Second.NOTED, others=[signal.SIGHUP, signal.SIGCHLD])
        self._processes: list[_Process] = []  # all living children
        self._roll: deque[_Slot] = deque()  # children that must still be replaced
        self._rolled: _Process | None = None  # the child that its successor replaces
        self._has_started = False  # a child has consumed
        self._is_stopping = False
        self._status = 0
        self._passed = time.monotonic()

    def states(self) -> dict[str, ProcessState]:
        """Return the last report of each running process."""
        now = time.monotonic()
        found = {}
        for slot in self._slots:
            process = slot.current
            if process is not None:
                found[str(slot.number)] = ProcessState(
                    process.consumers, process.metrics, now - process.heard)
        return found

    def is_live(self) -> bool:
        return time.monotonic() - self._passed < _STUCK

    def run(self, announce: Callable[[], None] = lambda: None) -> int:
        """Run until a signal, or until the children cannot run; return the exit status.

        ``announce`` prints the start, once signals are handled.
        """
        with self._signals:
            self._selector.register(self._signals, selectors.EVENT_READ)
            announce()
            self._start(self._slots[0], time.monotonic())
            try:
                while self._processes or not self._is_stopping:
                    self._pass()
            finally:
                for process in self._processes:  # after an error of ours: leave no child behind
                    process.signal(signal.SIGKILL)
                    process.child.process.wait()
                    process.child.socket.close()
                self._selector.close()
        return self._status

    def _pass(self) -> None:
        ready = self._selector.select(_TICK)
        former, self._passed = self._passed, time.monotonic()
        now, signals = self._passed, list[int]()
        for process in self._processes:
            process.look(now - former)
        for key, _ in ready:
            if not isinstance(key.data, _Process):
                signals = self._signals.take()
            elif not key.data.read(now):
                self._selector.unregister(key.fileobj)  # it ends, or a handler closed it
        for process in list(self._processes):
            if process.child.process.poll() is not None:
                self._on_end(process, now)
        for number in signals:
            self._on_signal(number, now)
        if not self._is_stopping:
            self._kill_hanging()
            self._note_started(now)
            self._advance_roll(now)
            self._reload(now)
            for slot in self._slots:
                if slot.start_at is not None and slot.start_at <= now:
                    self._start(slot, now)
        for process in self._processes:
            if process.kill_at is not None and process.kill_at <= now:
                process.kill_at = None
                logger.warning("process with pid %d did not end in time and is killed", process.pid)
                process.signal(signal.SIGKILL)

    def _kill_hanging(self) -> None:
        for process in self._processes:
            if (process.is_started and not process.is_leaving
                    and 0 < self._hang_timeout <= process.silent_for):
                process.silent_for = 0.0  # it is killed once
                logger.error("process with pid %d hangs: it has reported nothing for %g s, and is"
                             " killed", process.pid, self._hang_timeout)
                process.signal(signal.SIGKILL)

    def _spawn(self, slot: _Slot, now: float) -> _Process | None:
        try:
            child = spawn(f"process {slot.number}", not self._has_started, self._folder)
        except OSError as exc:
            logger.error("process %d cannot be started: %s", slot.number, exc)
            return None
        process = _Process(child, now)
        self._processes.append(process)
        self._selector.register(child.socket, selectors.EVENT_READ, process)
        return process

    def _start(self, slot: _Slot, now: float) -> None:
        slot.start_at = None
        slot.current = self._spawn(slot, now)
        if slot.current is None:
            self._again(slot, slot.policy.on_death(0.0, False), now)
        else:
            logger.info("process %d runs with pid %d", slot.number, slot.current.pid)

    def _again(self, slot: _Slot, delay: float | None, now: float) -> None:
        if delay is None:
            logger.error("process %d ended right after its start %d times in a row: the worker"
                         " ends", slot.number, MOST_DEATHS)
            self._stop(now, CHILDREN_DIE)
        else:
            slot.start_at = now + delay

    def _on_end(self, process: _Process, now: float) -> None:
        self._processes.remove(process)
        process.read(now)
        if process.child.socket in self._selector.get_map():
            self._selector.unregister(process.child.socket)
        process.child.socket.close()
        slots = [s for s in self._slots if process in (s.current, s.successor)]
        slot = slots[0] if slots else None
        status: int = process.child.process.returncode
        is_replacement = slot is not None and slot.successor is process
        if slot is not None:
            if is_replacement:
                slot.successor = None
            else:
                slot.current, slot.successor = slot.successor, None
                if slot.current is not None:
                    slot.current.kill_at = None
        if process.is_leaving or self._is_stopping:
            # A child that does not consume yet may end with any status, and has no messages.
            if status and process.is_started:
                self._status = self._status or FAILED
                logger.warning("process with pid %d %s", process.pid, _described(status))
        elif slot is None:
            return
        elif is_replacement:
            logger.error("process %d: its replacement %s, so the old process continues",
                         slot.number, _described(status))
            self._roll.clear()
        elif self._sources is not None and (status != USAGE or self._has_changed):
            logger.warning("process %d %s: waiting for a change", slot.number, _described(status))
        elif not self._has_started and status in (FAILED, USAGE) and not process.is_started:
            self._stop(now, status)  # it has said why
        elif slot.current is None:
            delay = slot.policy.on_death(now - process.began, process.is_started)
            if delay is not None:
                logger.warning("process %d (pid %d) %s; it starts again in %g s", slot.number,
                               process.pid, _described(status), delay)
            self._again(slot, delay, now)

    def _note_started(self, now: float) -> None:
        """Start the other children once the first one consumes."""
        started = any(process.is_started for process in self._processes)
        if self._has_started or self._is_restarting or not started:
            return
        self._has_started = True
        for slot in self._slots:
            if slot.current is None and slot.start_at is None:
                slot.start_at = now

    def _on_signal(self, number: int, now: float) -> None:
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGHUP and self._sources is None:
            if not self._is_stopping:
                logger.info("received SIGHUP: replacing the processes one by one")
                self._roll = deque(self._slots)
        elif not self._is_stopping:
            logger.info("stopping: received a signal")
            self._stop(now, 0)
        else:
            logger.warning("received a second signal: killing the processes")
            self._status = 128 + number
            for process in self._processes:
                process.signal(signal.SIGKILL)

    def _stop(self, now: float, status: int) -> None:
        self._is_stopping = True
        self._status = status
        for process in self._processes:
            self._leave(process, now + self._stop_timeout + _GRACE)

    def _leave(self, process: _Process, kill_at: float) -> None:
        if not process.is_leaving:
            process.is_leaving = True
            process.kill_at = kill_at
            process.signal(signal.SIGTERM)

    def _reload(self, now: float) -> None:
        if self._sources is not None and self._next_look <= now:
            changed = self._sources.changed()
            # A scan of many files takes long: at most a tenth of the time.
            self._next_look = now + max(_TICK, 9 * (time.monotonic() - now))
            if changed:
                logger.info("%s has changed: starting again", changed)
                self._has_changed = self._is_restarting = True
                self._has_started = False
                self._roll.clear()
                for slot in self._slots:
                    slot.current = slot.successor = slot.start_at = None
                for process in self._processes:
                    self._leave(process, now + _RELOAD_TIMEOUT)
        if self._is_restarting and not self._processes:
            self._is_restarting = False
            self._slots[0].start_at = now

    def _advance_roll(self, now: float) -> None:
        for slot in self._slots:
            successor = slot.successor
            if successor is not None and successor.can_take_over(now):
                successor.kill_at = None
                self._rolled, slot.current, slot.successor = slot.current, successor, None
                logger.info("process %d runs with pid %d", slot.number, successor.pid)
                if self._rolled is not None:
                    self._leave(self._rolled, now + self._stop_timeout + _GRACE)
        if self._rolled is not None:
            if self._rolled in self._processes:
                return  # one after the other
            self._rolled = None
        if not self._roll or any(slot.successor is not None for slot in self._slots):
            return
        slot = self._roll.popleft()
        if slot.current is None:
            slot.start_at = now
            return
        slot.successor = self._spawn(slot, now)
        if slot.successor is None:
            self._roll.clear()
        else:
            slot.successor.kill_at = now + _START_TIMEOUT


def _described(status: int) -> str:
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    return f"ended with status {status}"
