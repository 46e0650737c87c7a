"""Installs the oldest versions that setup.cfg admits, and runs the tests that depend on them.

``.venvs/floors`` holds exactly the lower bounds of ``install_requires``, and current test tools.
The tests cover HTTP, discovery and compression, with the answers that grow when they are
decoded. Arguments are handed on to pytest, in the place of these tests.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENT = CHECKOUT / ".venvs" / "floors"
#: The test tools need no floors: users of the library do not install them.
TOOLS = ["pytest", "pytest-timeout", "hypothesis", "trustme"]
TESTS = [
    "tests/http", "tests/test_discovery.py", "tests/protocol/test_peer_json.py",
    "tests/protocol/test_compression.py", "tests/faults/test_hostile_nsqlookupd.py",
]
#: Name, floor, and the Python below which it is required; without one, on every Python.
_REQUIREMENT = re.compile(r'([\w.-]+) >= ([\w.]+)(?:; python_version < "3\.(\d+)")?')
#: Prints the installed versions of the named distributions, in the form of the pins.
_SHOW = (
    "import sys, importlib.metadata as m; print(*(f'{n}=={m.version(n)}' for n in sys.argv[1:]))"
)


def read_floors(settings: str) -> list[str]:
    """Return the lower bounds of ``install_requires`` as pins, such as ``requests==2.32.4``.

    What this Python does not require is left out.

    Raises:
        ValueError: a requirement has another form than ``name >= version``, with or without a
            ``python_version`` below which it is required.
    """
    parser = configparser.ConfigParser()
    parser.read_string(settings)
    pins = []
    for line in parser["options"]["install_requires"].split("\n"):
        if line:
            match = _REQUIREMENT.fullmatch(line)
            if match is None:
                raise ValueError(f"setup.cfg requires {line!r}: give name >= version")
            if match[3] is None or sys.version_info[1] < int(match[3]):
                pins.append(f"{match[1]}=={match[2]}")
    return pins


def install(pins: list[str]) -> Path:
    """Make the environment, unless it is there with these pins; return its interpreter."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    wanted = "\n".join([sys.version, *pins, *TOOLS])
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"installing {' '.join(pins)} in .venvs/{ENVIRONMENT.name}", flush=True)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *pins, *TOOLS], check=True, cwd=CHECKOUT)
    stamp.write_text(wanted)
    return python


def installed(python: Path, pins: list[str]) -> list[str]:
    """Return the installed versions of the pinned distributions, as pins."""
    names = [pin.partition("==")[0] for pin in pins]
    done = subprocess.run([str(python), "-c", _SHOW, *names], check=True, capture_output=True,
                          text=True)
    return done.stdout.split()


def main(arguments: list[str]) -> int:
    """Install and test; return pytest's exit status."""
    pins = read_floors((CHECKOUT / "setup.cfg").read_text(encoding="utf-8"))
    python = install(pins)
    found = installed(python, pins)
    print(f"testing with {' '.join(found)}", flush=True)
    if found != pins:
        print(f"and not with {' '.join(pins)}, which setup.cfg admits", file=sys.stderr)
        return 1
    # The checkout itself is not installed: it is imported from here.
    return subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS)],
        cwd=CHECKOUT, check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
