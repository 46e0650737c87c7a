"""Build the real nsqd, nsqlookupd and utilities that the tests and benchmarks run against.

The programs land in ``.cache/nsq-1.3.0`` in the checkout; a second run finds them there and does
nothing. The requirements are pinned by ``tools/nsq/go.mod`` and ``go.sum``. If Go is
missing it says so, with exit status 0, or 1 if the environment has ``CI=true``.
With ``NSQ_BIN=folder`` the programs in that folder are used, and nothing is built.

Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "1.3.0"
PROGRAMS = (
    "nsqd",
    "nsqlookupd",
    "nsq_tail",
    "to_nsq",
    "nsq_to_file",
    "nsq_to_http",
    "nsq_to_nsq",
    "nsq_stat",
    "nsqadmin",
)
CHECKOUT = Path(__file__).resolve().parent.parent
MODULE = CHECKOUT / "tools" / "nsq"
TARGET = CHECKOUT / ".cache" / f"nsq-{VERSION}"


def programs_folder() -> Path:
    """Return the folder of the programs, which may not be built yet."""
    ready = os.environ.get("NSQ_BIN")
    return Path(ready) if ready else TARGET


def missing_programs(folder: Path, names: tuple[str, ...] = PROGRAMS) -> list[str]:
    """Return the names of the programs that ``folder`` does not hold."""
    return [name for name in names if not os.access(folder / name, os.X_OK)]


def find_go() -> str | None:
    """Return the go command: from PATH, or where Go's own installer puts it."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def _say(text: str) -> None:
    print(f"nsq {VERSION}: {text}", flush=True)


def _build_into(go: str, folder: Path) -> bool:
    for name in PROGRAMS:
        started = time.monotonic()
        done = subprocess.run(
            # No version control stamp: the module is ours, the program is not.
            [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(folder / name),
             f"github.com/nsqio/nsq/apps/{name}"],
            cwd=MODULE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr)
            _say(f"building {name} failed")
            return False
        _say(f"built {name} in {time.monotonic() - started:.1f} s")
    return True


def _publish(folder: Path) -> None:
    """Move the finished folder to its place in one step."""
    try:
        folder.rename(TARGET)
    except OSError:
        # Somebody else's build is there: it was finished meanwhile, or it is an incomplete one.
        if missing_programs(TARGET):
            shutil.rmtree(TARGET)
            folder.rename(TARGET)


def build() -> int:
    """Build the programs; return the exit status."""
    go = find_go()
    if go is None:
        strict = os.environ.get("CI") == "true"
        _say(
            "no Go found: the servers cannot be built, and CI=true needs them"
            if strict
            else "no Go found: runs against the real servers are skipped"
            " (install Go 1.18 or newer, or set NSQ_BIN to a folder with nsqd and nsqlookupd)"
        )
        return 1 if strict else 0
    TARGET.parent.mkdir(exist_ok=True)
    _say("building the real servers (about half a minute the first time)")
    # In the same parent folder, so that the rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix="nsq-build-", dir=TARGET.parent) as temporary:
        folder = Path(temporary) / "bin"
        folder.mkdir()
        if not _build_into(go, folder):
            return 1
        _publish(folder)
    _say("ready")
    return 0


def main() -> int:
    """Run from the command line; return the exit status."""
    folder = programs_folder()
    missing = missing_programs(folder)
    if os.environ.get("NSQ_BIN"):
        servers = [name for name in missing if name in ("nsqd", "nsqlookupd")]
        _say(f"NSQ_BIN is {folder}" + (f": {', '.join(servers)} missing there" if servers else ""))
        return 1 if servers else 0
    if not missing:
        _say("ready, built before")
        return 0
    return build()


if __name__ == "__main__":
    sys.exit(main())
