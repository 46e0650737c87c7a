"""Build MinIO, a server with S3's protocol, for ``make test-external`` and ``make hard
NAME=spark-chaos STORE=minio``.

Builds its Go module of a fixed version in ``.cache/minio``; a second run finds it there. Needs Go
and its module proxy, and some minutes. ``make test`` does not use it: its tests use moto.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from build_nsq import CHECKOUT, find_go

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
MODULE = "github.com/minio/minio"
TARGET = CHECKOUT / ".cache" / "minio" / "minio"


def build(go: str) -> int:
    """Build it; return the exit status."""
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minio-build-", dir=TARGET.parent.parent) as folder:
        # A module of ours that requires it, since its own cannot be installed as it stands.
        (Path(folder) / "go.mod").write_text("module nsqclient/minio\n\ngo 1.24\n")
        (Path(folder) / "tools.go").write_text(
            f'//go:build tools\n\npackage tools\n\nimport _ "{MODULE}"\n')
        program = Path(folder) / "minio"
        for command in (["get", f"{MODULE}@{VERSION}"],
                        ["build", "-buildvcs=false", "-o", str(program), MODULE]):
            done = subprocess.run([go, *command], cwd=folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                print(done.stdout[-3000:], file=sys.stderr)
                print(f"minio: go {command[0]} failed", flush=True)
                return 1
        program.rename(TARGET)
    print("minio: ready", flush=True)
    return 0


def main() -> int:
    """Run from the command line; return the exit status."""
    if os.access(TARGET, os.X_OK):
        print("minio: ready, built before")
        return 0
    go = find_go()
    if go is None:
        print("minio: no Go found")
        return 1
    print("minio: building, which takes some minutes", flush=True)
    return build(go)


if __name__ == "__main__":
    sys.exit(main())
