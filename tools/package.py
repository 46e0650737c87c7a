"""Build the sdist and the wheel, check them, and install the wheel as a user would.

1. ``build`` makes both, the wheel from the sdist, so a file that the sdist lacks is missed here.
2. ``twine check --strict`` reads their metadata.
3. The wheel has every module and data file of the checkout's packages, and nothing else.
4. In a new environment for the wheel alone, and in one for each extra, the modules that belong to
   it are imported, and ``pip check`` finds no conflict; the wheel alone also carries a message.

The results stay in ``dist``. Extras for developers, and Spark with its hundreds of megabytes, are
not installed; they are named at the end. Needs the packages of the extra ``package``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DIST = CHECKOUT / "dist"
#: extra -> modules that it is for; "" is the wheel alone.
EXTRAS = {
    "": ["nsqclient", "nsqclient.cli", "nsqclient.cli.doctor.doctor", "nsqclient.devserver",
         "nsqclient.http", "nsqclient.contrib.statsd"],
    "admin": ["nsqclient.admin", "nsqclient.cli.nsqadmin", "flask"],
    "django": ["nsqclient.contrib.django", "nsqclient.contrib.django.apps",
               "nsqclient.contrib.django.management.commands.nsq_consume"],
    "flask": ["nsqclient.contrib.flask"],
    "partitions": ["nsqclient.partitions", "mmh3"],
    "prometheus": ["nsqclient.contrib.prometheus"],
    "zstd": ["nsqclient.cli.archive.codecs", "zstandard"],
}
#: Those for developers come from the checkout, and Spark is large.
NOT_INSTALLED = {"coverage", "docs", "examples", "lint", "package", "spark", "test"}
#: Sends one message through the embedded nsqd.
JOURNEY = """
from nsqclient import Consumer, Producer
from nsqclient.devserver import Nsqd
with Nsqd() as nsqd, Producer([nsqd.tcp_address]) as producer:
    producer.publish("events", b"hello")
    with Consumer("events", "c", nsqd_tcp_addresses=[nsqd.tcp_address]) as consumer:
        assert next(consumer.messages(timeout=20)).body == b"hello"
"""


def run(*words: str | Path, cwd: Path = CHECKOUT) -> str:
    """Run a command; end with its output when it fails."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}")
    return done.stdout


def build() -> Path:
    """Make sdist and wheel anew; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        # A copy of what git knows: neither a build folder nor a stray file gets in.
        source = Path(folder) / "source"
        for name in run("git", "ls-files").splitlines():
            if (CHECKOUT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(CHECKOUT / name, source / name)
        run(sys.executable, "-m", "build", "--outdir", DIST, source)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> int:
    """Compare the wheel with the checkout; return how many files it has."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        extras = {line.partition(": ")[2] for line in archive.read(metadata).decode().splitlines()
                  if line.startswith("Provides-Extra: ")}
    packages = sorted({name.partition("/")[0] for name in found})
    wanted = set(run("git", "ls-files", *packages).splitlines())
    if found != wanted or "nsqclient/py.typed" not in found:
        sys.exit(
            f"missing in the wheel: {sorted(wanted - found)}; too much: {sorted(found - wanted)}")
    if extras != {*EXTRAS, *NOT_INSTALLED} - {""}:
        sys.exit(f"setup.cfg and tools/package.py name other extras: {extras}")
    return len(found)


def install(wheel: Path, extra: str) -> None:
    """Install the wheel, with one extra, in a new environment, and import what belongs to it."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        python = Path(folder) / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
        run(*pip, "install", "--quiet", f"{wheel}[{extra}]" if extra else wheel)
        run(*pip, "check")
        imports = "\n".join(f"import {module}" for module in EXTRAS[extra])
        # Elsewhere: the checkout must not be found instead of what was installed.
        run(python, "-W", "error", "-c", imports, cwd=Path(folder))
        if not extra:
            run(python, "-W", "error", "-c", JOURNEY, cwd=Path(folder))
            run(Path(folder) / "bin" / "nsqclient", "--version", cwd=Path(folder))


def main() -> int:
    """Do all of it, and say how long each step took."""
    def done(what: str) -> None:
        nonlocal began
        print(f"{what:<78} {time.monotonic() - began:5.1f} s", flush=True)
        began = time.monotonic()

    began = time.monotonic()
    wheel = build()
    done(f"{wheel.name} and its sdist are well")
    done(f"the wheel has its {check_contents(wheel)} files")
    # They mostly wait for the disk and for the index.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda extra: install(wheel, extra), EXTRAS))
    names = ", ".join(extra for extra in EXTRAS if extra)
    done(f"installed alone, and with {names}")
    print(f"not installed: {', '.join(sorted(NOT_INSTALLED))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
