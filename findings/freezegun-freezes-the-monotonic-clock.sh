#!/bin/sh
# Guess:   freezegun freezes the wall clock; timeouts, which use time.monotonic, still end.
# Happens: time.monotonic and time.perf_counter stand still, too. A loop that waits until a
#          deadline by time.monotonic never ends under freeze_time.
# Version: freezegun 1.5.5
# Source:  github.com/spulec/freezegun, freezegun/api.py (fake_monotonic)
# Seen:    2026-11-28
# Needs:   python3 with venv, pip
set -u
work=$(mktemp -d) || exit 77
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
python=${PYTHON:-python3}
"$python" -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install freezegun==1.5.5 >"$work/pip.log" 2>&1 ||
    { tail -n 3 "$work/pip.log"; skip "pip could not install freezegun==1.5.5"; }
"$work/venv/bin/python" - <<'EOF'
import queue, sys, time
from importlib.metadata import version
from freezegun import freeze_time

def wait(seconds, most):
    """Wait as a client with a deadline does; give up after so many turns."""
    deadline, turns = time.monotonic() + seconds, 0
    while time.monotonic() < deadline and turns < most:
        turns += 1
        try:
            queue.SimpleQueue().get(timeout=0.01)
        except queue.Empty:
            pass
    return turns

free = wait(0.2, 1000)
with freeze_time("2026-01-01"):
    frozen = wait(0.2, 100)
print(f"freezegun {version('freezegun')}: a wait of 0.2 s took {free} turns of 10 ms;"
      f" frozen, it had not ended after {frozen}")
sys.exit(frozen < 100)
EOF
