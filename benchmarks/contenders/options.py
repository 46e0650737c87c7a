"""The byte layers of a task as nsqclient's options."""

from __future__ import annotations

from nsqclient import Config


def config_of(layers: list[str]) -> Config:
    """Build the Config that asks for ``layers``: ``snappy``, ``deflate``, ``tls=FILE``."""
    options: dict[str, str] = {}
    for layer in layers:
        name, _, file = layer.partition("=")
        options |= {"tls_v1": "", "tls_root_ca_file": file} if name == "tls" else {name: ""}
    return Config.from_strings(options)
