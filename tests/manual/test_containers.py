"""The Dockerfile and the compose file are well-formed and start what exists."""

import json
import re
import shlex

import yaml

from nsqclient.cli import COMMANDS
from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import ROOT, blocks

INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT", "CMD", "STOPSIGNAL", "ARG",
}
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SETTINGS = (ROOT / "setup.cfg").read_text(encoding="utf-8")


def instructions(text: str = DOCKERFILE) -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def services() -> dict[str, dict]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]


def test_the_dockerfile_starts_the_console_script_as_a_user_of_its_own():
    """ENTRYPOINT and CMD are lists, so that signals reach the tool."""
    found = instructions()
    values = dict(found)
    assert found[0][0] == "FROM" and set(values) <= INSTRUCTIONS
    assert values["USER"] == "nsq"
    assert json.loads(values["ENTRYPOINT"]) == ["nsqclient"]
    assert json.loads(values["CMD"]) == ["--help"]
    assert "nsqclient = nsqclient.cli:main" in SETTINGS


def test_the_dockerfile_for_a_worker_is_correct():
    [block] = blocks("docs/howto/containers.rst", "docker")
    found = instructions(block.text)
    assert found[0][0] == "FROM" and {name for name, _ in found} <= INSTRUCTIONS
    tool, name, _, *flags = json.loads(dict(found)["CMD"])
    assert (tool, name) == ("nsqclient", "worker") and unknown_flags(flags, flags_of(name)) == []


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copies = [value.split() for name, value in instructions() if name == "COPY"]
    sources = [word for words in copies if not words[0].startswith("--") for word in words[:-1]]
    assert len(sources) >= 4
    for source in sources:
        assert (ROOT / source).exists()
        assert source.removeprefix("./") not in ignored


def test_the_extras_of_the_image_exist():
    [extras] = re.findall(r'"\.\[(.+?)\]"', DOCKERFILE)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} =$", SETTINGS, re.MULTILINE)


def test_the_services_have_commands_and_flags_that_exist():
    """Ours are sub-commands with known flags; NSQ's own have the flags that the embedded have."""
    for name, service in services().items():
        words = shlex.split(service["command"])
        tool = words[0].removeprefix("/")
        assert tool in COMMANDS, name
        assert ("build" in service) == (not words[0].startswith("/"))
        assert unknown_flags(words[1:], flags_of(tool)) == []


def test_services_and_volumes_that_are_named_exist():
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
    files = [DOCKERFILE,
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


def test_the_page_of_the_compose_file_answers_to_known_names_alone():
    """It listens for others inside its container, so the names of the page are given."""
    words = shlex.split(services()["nsqadmin"]["command"])
    assert {"--allowed-host=localhost", "--allowed-host=127.0.0.1"} <= set(words)
