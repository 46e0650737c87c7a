"""Runs the recipes of docs/topics/spark-reference.rst that need packages or jars of their own.

Each environment, ``.venvs/spark-NAME``, has one version of PySpark, and its tests are in
``tests/spark/recipes``. Maven fetches the jars of Delta and Iceberg. Arguments choose environments:
connect, delta, iceberg, old; all of them without arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
JARS = CHECKOUT / ".cache" / "spark-jars"
TOOLS = ["pytest", "pytest-timeout", "hypothesis", "trustme"]


class Environment(NamedTuple):
    """What one of them holds and runs."""

    requirements: list[str]
    test: str
    has_jars: bool = False


ENVIRONMENTS = {
    "connect": Environment(["pyspark[connect] ==4.3.*", "pandas <3"], "test_connect.py"),
    "delta": Environment(
        ["pyspark ==4.2.*", "delta-spark ==4.4.*", "pyarrow >=18"], "test_delta.py", True),
    "iceberg": Environment(["pyspark ==4.1.*", "pyarrow >=18"], "test_iceberg.py", True),
    "old": Environment(["pyspark ==3.5.*"], "test_old_pyspark.py"),
}


def install(name: str, requirements: list[str]) -> Path:
    """Make an environment, unless it is there with these requirements; return its interpreter."""
    folder = CHECKOUT / ".venvs" / f"spark-{name}"
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join([sys.version, *requirements, *TOOLS])
    if not (stamp.is_file() and stamp.read_text() == wanted):
        print(f"installing {', '.join(requirements)} in .venvs/{folder.name}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "--editable", ".", *requirements, *TOOLS], check=True, cwd=CHECKOUT)
        stamp.write_text(wanted)
    return python


def fetch_jars() -> None:
    """Fetch the jars with Maven, unless they are newer than pom.xml."""
    pom = CHECKOUT / "tools" / "spark" / "pom.xml"
    stamp = JARS / "fetched"
    if stamp.is_file() and stamp.stat().st_mtime > pom.stat().st_mtime:
        return
    print("fetching the jars of Delta and Iceberg", flush=True)
    subprocess.run(
        ["mvn", "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies",
         f"-DoutputDirectory={JARS}"], check=True)
    stamp.touch()


def main(names: list[str]) -> int:
    """Install and test; return 0 only when all tests passed."""
    unknown = set(names).difference(ENVIRONMENTS)
    if unknown:
        print(f"no environment {unknown.pop()!r}: {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or ENVIRONMENTS:
        environment = ENVIRONMENTS[name]
        python = install(name, environment.requirements)
        if environment.has_jars:
            fetch_jars()
        failed += subprocess.run(
            [str(python), "-m", "pytest", "-p", "no:cacheprovider",
             f"tests/spark/recipes/{environment.test}"],
            cwd=CHECKOUT, check=False,
            env={**os.environ, "SPARK_RECIPES": "1", "SPARK_JARS": str(JARS)},
        ).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
