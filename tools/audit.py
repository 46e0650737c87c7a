"""Ask pip-audit for known vulnerabilities of the installed packages.

The advisories of PyPI are asked first, then OSV's. Exit status: 0 nothing is known, or
nobody could be asked (printed in capitals); 1 something is.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from typing import Any

_SERVICES = ("pypi", "osv")


class NotReached(Exception):
    """A service answered for no package at all; the text says why."""


def main() -> int:
    """Run pip-audit and report."""
    today = datetime.date.today().isoformat()
    reasons = []
    for service in _SERVICES:
        try:
            return _report(today, service, _ask(service))
        except NotReached as exc:
            reasons.append(f"{service}: {exc}")
    print(f"{today}: NOT RUN, advisories cannot be reached: {'; '.join(reasons)}")
    return 0


def _ask(service: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off",
         "--vulnerability-service", service],
        capture_output=True, text=True, check=False,
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise NotReached(f"no report, {done.stderr.strip()[-200:]}") from None
    if all("skip_reason" in entry for entry in found):
        raise NotReached(found[0]["skip_reason"] if found else "nothing is installed")
    return found


def _report(today: str, service: str, found: list[dict[str, Any]]) -> int:
    asked = [entry for entry in found if "skip_reason" not in entry]
    vulnerable = [entry for entry in asked if entry["vulns"]]
    for entry in vulnerable:
        names = ", ".join(vulnerability["id"] for vulnerability in entry["vulns"])
        print(f"{entry['name']} {entry['version']}: {names}")
    print(
        f"{today}: {len(asked)} packages audited by {service}, {len(found) - len(asked)} could not"
        f" be, {len(vulnerable)} with known vulnerabilities"
    )
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
