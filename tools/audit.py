"""Asks pip-audit for known vulnerabilities of what is installed; says so when it could not ask.

Exit status: 0 nothing is known, or nobody could be asked (printed in capitals); 1 something is.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys


def main() -> int:
    """Run pip-audit and report."""
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"],
        capture_output=True, text=True, check=False,
    )
    today = datetime.date.today().isoformat()
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{today}: NOT RUN, pip-audit gave no report: {done.stderr.strip()[-300:]}")
        return 0
    asked = [entry for entry in found if "skip_reason" not in entry]
    if not asked:
        reason = found[0]["skip_reason"] if found else "nothing is installed"
        print(f"{today}: NOT RUN, advisories cannot be reached ({reason})")
        return 0
    vulnerable = [entry for entry in asked if entry["vulns"]]
    for entry in vulnerable:
        names = ", ".join(vulnerability["id"] for vulnerability in entry["vulns"])
        print(f"{entry['name']} {entry['version']}: {names}")
    print(
        f"{today}: {len(asked)} packages audited, {len(found) - len(asked)} could not be,"
        f" {len(vulnerable)} with known vulnerabilities"
    )
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
