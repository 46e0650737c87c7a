"""The Dockerfile and the compose file are well-formed and start what exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from nsqclient.cli import COMMANDS
from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import ROOT, blocks

INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT", "CMD", "STOPSIGNAL", "ARG",
}


def instructions(text: str | None = None) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, ours by default; continued lines joined."""
    if text is None:
        text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def services() -> dict[str, dict]:
    """Return the services of the compose file."""
    return yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]


def test_the_dockerfile_has_known_instructions_only():
    """It begins with FROM, and runs as a user of its own."""
    found = instructions()
    assert found[0][0] == "FROM"
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert [value for name, value in found if name == "USER"] == ["nsq"]


def test_the_dockerfile_for_a_worker_is_correct():
    """The one on the page has known instructions, and starts the worker without a shell."""
    [block] = blocks("docs/howto/containers.rst", "docker")
    found = instructions(block.text)
    assert found[0][0] == "FROM" and {name for name, _ in found} <= INSTRUCTIONS
    tool, name, _, *flags = json.loads(dict(found)["CMD"])
    assert (tool, name) == ("nsqclient", "worker") and unknown_flags(flags, flags_of(name)) == []


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    """The sources of COPY exist, and .dockerignore leaves them in."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copies = [value.split() for name, value in instructions() if name == "COPY"]
    sources = [word for words in copies if not words[0].startswith("--") for word in words[:-1]]
    assert len(sources) >= 4
    for source in sources:
        assert (ROOT / source).exists()
        assert source.removeprefix("./") not in ignored


def test_the_entry_point_is_the_console_script():
    """ENTRYPOINT and CMD are lists, so that signals reach the tool; the script is declared."""
    values = dict(instructions())
    assert json.loads(values["ENTRYPOINT"]) == ["nsqclient"]
    assert json.loads(values["CMD"]) == ["--help"]
    assert "nsqclient = nsqclient.cli:main" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_the_extras_of_the_image_exist():
    """What pip installs between brackets is in setup.cfg."""
    settings = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    extras = re.search(r'"\.\[(.+?)\]"', dict(instructions_of("RUN"))["pip"])
    assert extras is not None
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} =$", settings, re.MULTILINE)


def instructions_of(name: str) -> list[tuple[str, str]]:
    """Return the values of one instruction, under the name of the program that they call last."""
    return [
        ("pip" if "pip install" in value else value.split()[0], value)
        for found, value in instructions() if found == name
    ]


def test_the_services_have_commands_and_flags_that_exist():
    """Ours are sub-commands with known flags; NSQ's own have the flags that the embedded have."""
    for name, service in services().items():
        words = shlex.split(service["command"])
        tool = words[0].removeprefix("/")
        assert tool in COMMANDS, name
        assert ("build" in service) == (not words[0].startswith("/"))
        assert unknown_flags(words[1:], flags_of(tool)) == []


def test_services_and_volumes_that_are_named_exist():
    """Each depends_on is a service, each named volume is declared."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    for service in compose["services"].values():
        assert set(service.get("depends_on", [])) <= set(compose["services"])
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


def test_ports_are_open_for_this_machine_only():
    """nsqd has no password by default, so nothing listens on all addresses of the host."""
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_base_images_have_exact_tags():
    """A digest, or a version to its last number: a build next month begins with the same."""
    files = [(ROOT / "Dockerfile").read_text("utf-8"),
             *(block.text for block in blocks("docs/howto/containers.rst", "docker"))]
    images = [value.split()[0] for text in files for name, value in instructions(text)
              if name == "FROM"]
    images += [service["image"] for service in services().values() if "image" in service]
    assert len(images) >= 5
    exact = re.compile(r"[\w./-]+(@sha256:[0-9a-f]{64}|:v?\d+\.\d+\.\d+(-\w+)*)")
    assert [image for image in images if not exact.fullmatch(image)] == []


def test_services_with_a_port_have_a_health_check():
    """It asks the service's own HTTP port for /ping; others wait until that is answered."""
    for name, service in services().items():
        test = " ".join(service.get("healthcheck", {}).get("test", []))
        asked = re.findall(r"http://127\.0\.0\.1:(\d+)/ping", test)
        ports = [port.rpartition(":")[2] for port in service.get("ports", [])]
        assert bool(ports) == bool(asked) and set(asked) <= set(ports), name
        assert all(value == {"condition": "service_healthy"}
                   for value in service.get("depends_on", {}).values())


def has_docker() -> bool:
    """Return whether a Docker daemon answers."""
    if shutil.which("docker") is None:
        return False
    try:
        found = subprocess.run(["docker", "info"], capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        return False
    return found.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_image_builds_and_its_entry_point_answers():
    """Where Docker runs: the image is built, and prints the help."""
    if not has_docker():
        pytest.skip("no Docker daemon answers")
    build = ["docker", "build", "--quiet", "--tag", "nsqclient-test", "."]
    subprocess.run(build, cwd=ROOT, check=True, timeout=500)
    run = ["docker", "run", "--rm", "nsqclient-test"]
    answer = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    assert "nsq_to_file" in answer.stdout


def test_the_page_of_the_compose_file_answers_to_known_names_alone():
    """It listens for others inside its container, so the names of the page are given."""
    words = shlex.split(services()["nsqadmin"]["command"])
    assert {"--allowed-host=localhost", "--allowed-host=127.0.0.1"} <= set(words)
