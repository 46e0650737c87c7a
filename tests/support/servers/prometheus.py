"""A real Prometheus, if one is installed."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
_FETCHED = CHECKOUT / ".cache" / "prometheus"


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; skip the test if it is missing."""
    for folder in (os.environ.get("PROMETHEUS_BIN"), str(_FETCHED)):
        if folder and os.access(Path(folder) / name, os.X_OK):
            return str(Path(folder) / name)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: tools/fetch.sh fetches it on Debian; or set PROMETHEUS_BIN to the"
                    " folder of prometheus and promtool")
    return found


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **params: str) -> Any:
        """GET from its HTTP API; return the data."""
        answer = requests.get(f"{self._url}/api/v1/{path}", params=params, timeout=30)
        values = answer.json()
        assert values["status"] == "success", (params, values)
        return values["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


@contextmanager
def running(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a target each second."""
    config = folder / "prometheus.json"  # JSON is YAML
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "nsq", "static_configs": [{"targets": [target]}]}],
    }))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [program("prometheus"), f"--config.file={config}", f"--web.listen-address={address}",
             f"--storage.tsdb.path={folder / 'data'}"], stdout=log, stderr=log)

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        try:
            return requests.get(f"http://{address}/-/ready", timeout=10).status_code == 200
        except requests.ConnectionError:
            return False

    try:
        wait_until(is_ready, timeout=60, message="Prometheus is ready")
        yield Prometheus(f"http://{address}")
    finally:
        process.kill()
        process.wait()
