"""Run the test suites of other NSQ clients on the real servers and on the embedded ones.

Each suite is fetched by the client of its own registry in the version that is pinned here or in
``tools/suites``: an sdist by pip, a module by Go, a package by npm. They stay in
``.cache/strangers``. Their tests find ``nsqd`` and ``nsqlookupd`` in PATH, or on NSQ's own ports,
which must be free. The end is a table of the tests that passed.

What cannot be run, since Go, node or the network is missing, is named with NOT RUN. The exit status
is 1 if a suite gave no result, or a test passes on the real servers only, and with ``CI=true`` also
if a suite was not run on both; 2 for an unknown suite or a used port. Without a real result, each
embedded failure counts. ``python tools/strangers.py gnsq`` runs one suite. Only the standard
library is used here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import build_nsq

CHECKOUT = Path(__file__).resolve().parent.parent
MODULES = CHECKOUT / "tools" / "suites"
CACHE = CHECKOUT / ".cache" / "strangers"
PORTS = (4150, 4151, 4160, 4161, 4250, 4251, 4260, 4261)
#: Seconds after which a suite or an installation is stopped.
LONGEST = 900
#: mocha's limit for one test, in ms; its own 2 s are short for a busy machine.
MOCHA_LIMIT = 20_000
_GO_NSQ = "github.com/nsqio/go-nsq"
#: Version of each sdist, and what its tests need.
SDISTS = {
    "pynsq": ("0.9.1", "tornado==6.6.1", "pytest==7.4.4"),
    "ansq": ("0.3.0", "aiohttp==3.14.5", "pytest==7.4.4", "pytest-asyncio==0.21.2"),
    "gnsq": ("1.0.2", "gevent==26.9.0", "mock==5.2.0", "pytest==7.4.4", "python-snappy==0.7.3"),
}


class NotRun(Exception):
    """A suite cannot be run; says why."""


class NoTests(Exception):
    """The package of a client does not carry its tests."""


class Result(NamedTuple):
    """The names of a suite's tests, by how they ended."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str] = frozenset()

    def __str__(self) -> str:
        count = len(self.passed) + len(self.failed)
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{len(self.passed)}/{count}{skipped}"


# -- reports of the test runners


def read_junit(text: str) -> Result:
    """Read pytest's ``--junitxml``. A test that failed and whose teardown failed is one failure.

    Raises:
        ValueError: the text is not such a report.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as exc:
        raise ValueError(f"no report of pytest: {exc}") from exc
    ended: dict[str, str] = {}
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            ended[name] = "fail"
        else:
            ended.setdefault(name, "skip" if "skipped" in kinds else "pass")
    return _result(ended)


def read_go(text: str) -> Result:
    """Read the events of ``go test -json``; a test that has begun and not ended has failed.

    Subtests belong to their test. Lines of the linker are skipped.
    """
    ended: dict[str, str] = {}
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name = event.get("Test", "") if isinstance(event, dict) else ""
        if name and "/" not in name:
            action = event.get("Action")
            ended.setdefault(name, "fail")
            if action in ("pass", "skip"):
                ended[name] = action
    return _result(ended)


def read_mocha(text: str) -> Result:
    """Read mocha's JSON report.

    Raises:
        ValueError: the text is not such a report.
    """
    try:
        report = json.loads(text)
        titles = {
            key: _numbered([test["fullTitle"] for test in report[key]])
            for key in ("tests", "failures", "pending")
        }
    except (ValueError, LookupError, TypeError) as exc:
        raise ValueError(f"no report of mocha: {exc!r}") from exc
    failed, skipped = frozenset(titles["failures"]), frozenset(titles["pending"])
    return Result(frozenset(titles["tests"]) - failed - skipped, failed, skipped)


def _numbered(titles: Sequence[str]) -> list[str]:
    """Make equal titles different."""
    seen: dict[str, int] = {}
    names = []
    for title in titles:
        seen[title] = number = seen.get(title, 0) + 1
        names.append(title if number == 1 else f"{title} ({number})")
    return names


def _result(ended: Mapping[str, str]) -> Result:
    passed, failed, skipped = (
        frozenset(name for name, end in ended.items() if end == kind)
        for kind in ("pass", "fail", "skip")
    )
    return Result(passed, failed, skipped)


# -- fetching


def run(words: Sequence[str | Path], **options: object) -> str:
    """Run a command that fetches or builds; return its output.

    Raises:
        NotRun: it failed or took too long; with the last line that it wrote.
    """
    texts = [str(word) for word in words]
    try:
        done = subprocess.run(  # type: ignore[call-overload] # options are handed on
            texts, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST,
            check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotRun(f"{' '.join(texts[:4])}: {exc}") from exc
    output: str = done.stdout
    if done.returncode:
        last = output.strip().splitlines()[-1:] or ["no output"]
        raise NotRun(f"{' '.join(texts[:4])} failed: {last[0]}")
    return output


def is_ready(folder: Path, wanted: str) -> bool:
    """True if the folder holds the wanted version; otherwise empty it."""
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return False


def fetch_sdist(name: str) -> Path:
    """Download an sdist and install the package with what its tests need; return its source.

    Raises:
        NotRun: the source cannot be fetched.
        NoTests: the package does not carry its tests.
    """
    version, *requirements = SDISTS[name]
    folder = CACHE / name
    source = folder / f"{name}-{version}"
    wanted = "\n".join([sys.version, version, *requirements])
    if not is_ready(folder, wanted):
        print(f"{name} {version}: pip download, pip install", flush=True)
        venv.create(folder / "venv", with_pip=True)
        pip = [folder / "venv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
        run([*pip, "download", "--no-deps", f"--no-binary={name}", "--dest", folder,
             f"{name}=={version}"])
        with tarfile.open(folder / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        if any(source.glob("tests/test_*.py")):
            run([*pip, "install", f"{name}=={version}", *requirements])
        (folder / "installed").write_text(wanted)
    if not any(source.glob("tests/test_*.py")):
        raise NoTests("its sdist has no tests")
    return source


def run_pytest(name: str, report: Path, environment: Mapping[str, str], *words: str) -> Result:
    """Run the tests of an sdist."""
    source = fetch_sdist(name)
    python = source.parent / "venv" / "bin" / "python"
    # With the settings of the sdist: pytest would look for others in the folders above.
    call([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={source}", "-c",
          source / "setup.cfg", f"--junitxml={report}", *words, "tests"], source, environment)
    return read_junit(report.read_text() if report.exists() else "")


def call(words: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a suite and return its stdout; its exit status does not matter.

    Everything that it started is ended with it.

    Raises:
        ValueError: it did not end in time.
    """
    process = subprocess.Popen(
        [str(word) for word in words], cwd=folder, env=dict(environment), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True)
    try:
        return process.communicate(timeout=LONGEST)[0]
    except subprocess.TimeoutExpired:
        raise ValueError(f"did not end within {LONGEST} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# -- the suites


def pynsq(environment: Mapping[str, str], report: Path) -> Result:
    """pynsq, the official Python client."""
    return run_pytest("pynsq", report, environment)


def gnsq(environment: Mapping[str, str], report: Path) -> Result:
    """gnsq, which starts servers of its own."""
    return run_pytest("gnsq", report, environment)


def ansq(environment: Mapping[str, str], report: Path) -> Result:
    """ansq, for asyncio; the fixtures that its sdist lacks are ours."""
    return run_pytest("ansq", report, {**environment, "PYTHONPATH": str(MODULES)},
                      "-p", "ansq_fixtures")


def go_nsq(environment: Mapping[str, str], report: Path) -> Result:
    """go-nsq, the official Go client, which wants servers on NSQ's own ports."""
    go = build_nsq.find_go()
    if go is None:
        raise NotRun("no Go found")
    run([go, "mod", "download"], cwd=MODULES)
    certificates = Path(run([go, "list", "-m", "-f", "{{.Dir}}", _GO_NSQ], cwd=MODULES).strip())
    with servers(environment, certificates / "test"):
        return read_go(call(
            [go, "test", "-json", "-count=1", f"-timeout={LONGEST}s", _GO_NSQ], MODULES,
            environment))


def nsqjs(environment: Mapping[str, str], report: Path) -> Result:
    """nsqjs, which starts servers of its own."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise NotRun("no node with npm found")
    folder = CACHE / "nsqjs"
    wanted = (MODULES / "package.json").read_text()
    if not is_ready(folder, wanted):
        print("nsqjs: npm install", flush=True)
        (folder / "package.json").write_text(wanted)
        run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder)
        (folder / "installed").write_text(wanted)
    call([node, folder / "node_modules" / "mocha" / "bin" / "mocha", "--exit",
          f"--timeout={MOCHA_LIMIT}", "--reporter=json", f"--reporter-option=output={report}"],
         folder / "node_modules" / "nsqjs", environment)
    return read_mocha(report.read_text() if report.exists() else "")


class Suite(NamedTuple):
    """Tests of another project; ``run`` gets the environment and a path for a report."""

    name: str
    version: str
    run: Callable[[Mapping[str, str], Path], Result]


def pinned(module: str) -> str:
    """Return the version of a Go module or an npm package that ``tools/suites`` pins."""
    packages: dict[str, str] = json.loads((MODULES / "package.json").read_text())["dependencies"]
    if module in packages:
        return packages[module]
    text = (MODULES / "go.mod").read_text()
    return text.partition(f"require {module} v")[2].partition("\n")[0]


SUITES = (
    Suite("pynsq", SDISTS["pynsq"][0], pynsq),
    Suite("ansq", SDISTS["ansq"][0], ansq),
    Suite("gnsq", SDISTS["gnsq"][0], gnsq),
    Suite("go-nsq", pinned(_GO_NSQ), go_nsq),
    Suite("nsqjs", pinned("nsqjs"), nsqjs),
)


# -- the servers


@contextlib.contextmanager
def servers(environment: Mapping[str, str], certificates: Path) -> Iterator[None]:
    """Run nsqlookupd, and nsqd with a certificate, on NSQ's own ports."""
    with tempfile.TemporaryDirectory(prefix="nsqclient-strangers-") as data, \
            contextlib.ExitStack() as stack:
        for words in (
            ["nsqlookupd"],
            ["nsqd", f"--data-path={data}", "--lookupd-tcp-address=127.0.0.1:4160",
             f"--tls-cert={certificates / 'server.pem'}",
             f"--tls-key={certificates / 'server.key'}",
             f"--tls-root-ca-file={certificates / 'ca.pem'}"],
        ):
            program = shutil.which(words[0], path=environment["PATH"])
            assert program is not None
            process = subprocess.Popen(
                [program, *words[1:], "--broadcast-address=127.0.0.1"], env=dict(environment),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for port in (4151, 4161):
            wait_for_ping(port)
        yield


def wait_for_ping(port: int, timeout: float = 60.0) -> None:
    """Wait until an HTTP server answers. Raises ValueError when it does not."""
    until = time.monotonic() + timeout
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5):
                return
        except OSError as exc:
            if time.monotonic() > until:
                raise ValueError(f"no server on port {port}: {exc}") from exc
            threading.Event().wait(0.05)


def used_ports() -> list[int]:
    """Return the ports that the suites need and another process listens on."""
    used = []
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                used.append(port)
    return used


def server_folders() -> dict[str, Path]:
    """Return the folders of both kinds of servers; the real ones only if they are built."""
    folder = CACHE / "embedded"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("nsqd", "nsqlookupd"):
        script = folder / name
        # Let Python cache its bytecode: the suites start these programs many times.
        script.write_text(
            "#!/bin/sh\nunset PYTHONDONTWRITEBYTECODE\n"
            f'exec {shlex.quote(sys.executable)} -m nsqclient {name} "$@"\n')
        script.chmod(0o755)
    real = build_nsq.programs_folder()
    if build_nsq.missing_programs(real, ("nsqd", "nsqlookupd")):
        return {"embedded": folder}
    return {"real": real, "embedded": folder}


# -- the outcome


class Row(NamedTuple):
    """A suite and its outcomes: kind of server -> result, or why it was not run."""

    name: str
    version: str
    outcomes: dict[str, Result | str]

    def worse(self) -> frozenset[str]:
        """Return tests that pass on real servers and not on embedded ones.

        Without a real result: all embedded failures.
        """
        real, embedded = self.outcomes["real"], self.outcomes["embedded"]
        if not isinstance(real, Result):
            return embedded.failed if isinstance(embedded, Result) else frozenset()
        return real.passed - (embedded.passed if isinstance(embedded, Result) else frozenset())


def table(rows: Sequence[Row]) -> str:
    """Return the table of passes, in the form in which the docs show it."""
    cells = [("suite", "real", "embedded")]
    for row in rows:
        texts = [str(row.outcomes[kind]) for kind in ("real", "embedded")]
        cells.append((f"{row.name} {row.version}", *texts))
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    border = "  ".join("=" * width for width in widths)
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
             for line in cells]
    return "\n".join([border, lines[0], border, *lines[1:], border])


def run_suite(suite: Suite, folders: Mapping[str, Path]) -> Row:
    """Run a suite on each kind of server."""
    row = Row(suite.name, suite.version, {"real": "NOT RUN: the real servers are not built"})
    for kind, folder in folders.items():
        began = time.monotonic()
        environment = {
            **os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        with tempfile.TemporaryDirectory(prefix="nsqclient-strangers-") as temporary:
            try:
                row.outcomes[kind] = suite.run(environment, Path(temporary) / "report")
            except NotRun as exc:
                row.outcomes[kind] = f"NOT RUN: {exc}"
            except NoTests as exc:
                row.outcomes[kind] = str(exc)
            except ValueError as exc:
                row.outcomes[kind] = f"NO RESULT: {exc}"
        print(f"{suite.name} {suite.version}, {kind}: {row.outcomes[kind]}"
              f" ({time.monotonic() - began:.0f} s)", flush=True)
    return row


def main(names: Sequence[str]) -> int:
    """Run the suites of these names, or all; return the exit status."""
    known = {suite.name: suite for suite in SUITES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no suite {unknown[0]!r}: there are {', '.join(known)}", file=sys.stderr)
        return 2
    used = used_ports()
    if used:
        print(f"port {used[0]} is in use: end what listens on the ports that the suites need"
              f" ({', '.join(map(str, PORTS))})", file=sys.stderr)
        return 2
    folders = server_folders()
    rows = [run_suite(suite, folders) for suite in SUITES if not names or suite.name in names]
    print()
    print(table(rows))
    status = 0
    for row in rows:
        for kind, outcome in row.outcomes.items():
            if isinstance(outcome, Result):
                for name in sorted(outcome.failed):
                    print(f"{row.name}, {kind}: failed {name}")
            elif outcome.startswith("NO RESULT") or (
                    outcome.startswith("NOT RUN") and os.environ.get("CI") == "true"):
                status = 1
        if row.worse():
            print(f"{row.name}: tests that do not pass on the embedded servers:"
                  f" {len(row.worse())} (real servers: {row.outcomes['real']})")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
