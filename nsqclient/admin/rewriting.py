"""``Rewriter``: addresses that nsqds announce, as they are reached from here.

An nsqd in Docker or behind NAT announces an address of its own network.
"""

from __future__ import annotations

from collections.abc import Iterable

from nsqclient.errors import ConfigError
from nsqclient.runtime.transport import format_address, parse_address


class Rewriter:
    """Rewrites ``host:port`` by rules.

    Args:
        rules: (from, to). ``host:port`` stands for that port alone, ``host`` for every port of
            it; in "to" a missing port keeps the one that was announced.

    Raises:
        ConfigError: a rule is none.
    """

    def __init__(self, rules: Iterable[tuple[str, str]]) -> None:
        self._rules: dict[str, str] = {}
        for source, target in rules:
            if not source or not target:
                raise ConfigError(
                    f"rewrite_address {source!r}={target!r}: give FROM=TO, each host or host:port"
                )
            for text in (source, target):
                if _has_port(text):
                    parse_address(text, "rewrite_address")
            self._rules[source.lower()] = target

    def __call__(self, host: str, port: int) -> str:
        """Return the address where ``host:port`` is reached."""
        address = format_address(host, port)
        target = self._rules.get(address.lower(), self._rules.get(host.lower()))
        if target is None:
            return address
        return target if _has_port(target) else format_address(target, port)


def _has_port(text: str) -> bool:
    # An IPv6 address without brackets has colons and no port.
    return text.startswith("[") or text.count(":") == 1


def parse_rule(text: str) -> tuple[str, str]:
    """Read ``FROM=TO``.

    Raises:
        ValueError: there is no equals sign, or nothing beside it.
    """
    source, equals, target = text.partition("=")
    if not equals or not source.strip() or not target.strip():
        raise ValueError(f"{text!r}: give FROM=TO, such as 172.17.0.2:4151=127.0.0.1:14151")
    return source.strip(), target.strip()
