"""The flags of every command, for the configuration file and for completion.

A command is a module with ``main(argv) -> int``. Its ``build_flags()`` gives its flags; a module
that has commands of its own gives theirs with ``build_all_flags()``.
"""

from __future__ import annotations

import importlib
from typing import Any

from nsqclient.cli import COMMANDS
from nsqclient.cli.goflags import FlagSet


def flag_sets(command: str) -> dict[str, FlagSet]:
    """Return the flags of a command: name -> flags; several where it has commands of its own."""
    module: Any = importlib.import_module(COMMANDS[command][0])
    if hasattr(module, "build_all_flags"):
        found: dict[str, FlagSet] = module.build_all_flags()
        return found
    return {command: module.build_flags()}


def all_flag_sets() -> dict[str, FlagSet]:
    """Return the flags of every command. Imports all of them, which takes a moment."""
    return {name: flags for command in COMMANDS for name, flags in flag_sets(command).items()}
