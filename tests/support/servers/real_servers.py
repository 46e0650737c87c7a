"""The real nsqd and nsqlookupd as child processes of a test."""

import os
import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.servers.http_api import ServerUnderTest
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[3]
#: Where tools/build_nsq.py puts the programs.
BUILT = CHECKOUT / ".cache" / "nsq-1.3.0"

Option = str | int | float | bool | Iterable[str]

# Options whose number is a duration in seconds, by the end of their name.
_DURATIONS = ("_timeout", "_interval", "_lifetime", "_time")


def program(name: str) -> Path:
    """Return the path of a real program; if it is missing, skip the test, or fail in CI."""
    path = Path(os.environ.get("NSQ_BIN") or BUILT) / name
    if not os.access(path, os.X_OK):
        text = f"no real {name} (run tools/build_nsq.py, which needs Go, or set NSQ_BIN)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return path


def flags(options: dict[str, Option]) -> list[str]:
    """Turn options, named as the flags with underscores, into flags. Durations are seconds."""
    result = []
    for name, value in options.items():
        flag = "-" + name.removesuffix("es" if name.endswith("_addresses") else "")
        flag = flag.replace("_", "-")
        if isinstance(value, bool):
            result.append(f"{flag}={str(value).lower()}")
        elif isinstance(value, (int, float)) and name.endswith(_DURATIONS):
            result.append(f"{flag}={value:.6f}s")
        elif isinstance(value, (str, int, float)):
            result.append(f"{flag}={value}")
        else:
            result += [f"{flag}={item}" for item in value]
    return result


class RealServer(ServerUnderTest):
    program_name = ""
    kind = "real"

    def __init__(self, folder: Path, **options: Option) -> None:
        super().__init__()
        self._program = program(self.program_name)
        self._log_path = folder / f"{self.program_name}.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def https_address(self) -> str:
        wait_until(lambda: "HTTPS: listening on" in self.log())
        found = re.search(r"HTTPS: listening on (\S+)", self.log())
        assert found is not None
        return found[1]

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def log(self) -> str:
        """Return the server's log since its last start."""
        return self._log_path.read_text(errors="replace")

    def _extra_flags(self) -> list[str]:
        return []

    def _launch(self) -> None:
        command = [
            str(self._program),
            f"-tcp-address={self.tcp_address}",
            f"-http-address={self.address}",
            "-broadcast-address=127.0.0.1",
            *self._extra_flags(),
            *flags(self._options),
        ]
        with self._log_path.open("wb") as log:
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

        def listens_or_ended() -> bool:
            return process.poll() is not None or {"TCP", "HTTP"} <= set(
                re.findall(r"(TCP|HTTP): listening on", self.log())
            )

        wait_until(listens_or_ended, timeout=30, message=f"{self.program_name} listens")
        if process.poll() is not None:
            raise OSError(f"{self.program_name} did not start:\n{self.log()}")

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
            process.wait()


class RealNsqd(RealServer):
    """A real nsqd with its own data path, which a restart finds again."""

    program_name = "nsqd"

    def __init__(self, folder: Path, **options: Option) -> None:
        super().__init__(folder, **options)
        self.data_path = folder / "data"
        self.data_path.mkdir(exist_ok=True)

    def _extra_flags(self) -> list[str]:
        # With a certificate it listens for HTTPS too, on 0.0.0.0:4152 by default.
        return [f"-data-path={self.data_path}", "-https-address=127.0.0.1:0"]


class RealNsqlookupd(RealServer):
    """A real nsqlookupd. It keeps nothing over a restart."""

    program_name = "nsqlookupd"
