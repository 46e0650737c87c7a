"""The Dockerfiles and the compose file start existing commands, from exact images."""

import json
import re
import shlex
from typing import Any

import yaml

from nsqclient.cli import COMMANDS
from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import ROOT, blocks, read

DOCKERFILES = [read("examples/Dockerfile"),
               *(block.text for block in blocks("docs/howto/containers.rst", "docker"))]
COMPOSE: dict[str, Any] = yaml.safe_load(read("examples/compose.yaml"))
SERVICES: dict[str, Any] = COMPOSE["services"]


def values(dockerfile: str, instruction: str) -> list[str]:
    joined = re.sub(r"\\\n\s*", " ", dockerfile)
    return re.findall(rf"^{instruction} (.*)$", joined, re.MULTILINE)


def test_the_commands_of_images_and_services_exist() -> None:
    """NSQ's own servers, whose commands begin with a slash, have the flags of the embedded ones."""
    worker = json.loads(values(DOCKERFILES[1], "CMD")[0])
    commands = [worker[1:2] + worker[3:]]
    for service in SERVICES.values():
        words = shlex.split(service["command"])
        assert ("build" in service) == (not words[0].startswith("/"))
        commands.append([words[0].removeprefix("/"), *words[1:]])
    for tool, *flags in commands:
        assert tool in COMMANDS and unknown_flags(flags, flags_of(tool)) == []


def test_services_and_volumes_that_are_named_exist() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]
        if "build" in service:
            folder = (ROOT / "examples" / service["build"]["context"]).resolve()
            assert folder == ROOT and (folder / service["build"]["dockerfile"]).is_file()


def test_ports_are_open_for_this_machine_only() -> None:
    """nsqd has no password by default."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
