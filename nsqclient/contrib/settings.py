"""``Settings``: what a web framework's configuration says about NSQ, checked as a whole.

One mapping for every framework::

    NSQCLIENT = {
        "NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"],
        "LOOKUPD_HTTP_ADDRESSES": ["127.0.0.1:4161"],
        "OPTIONS": {"max_in_flight": 10},
        "PRODUCER": {"sticky": True},
    }

Knows no framework.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsqclient.addresses import check_addresses
from nsqclient.config import OPTIONS, Config, secrets_of, with_secrets
from nsqclient.errors import ConfigError
from nsqclient.producer import Producer

_KEYS = ("NSQD_TCP_ADDRESSES", "LOOKUPD_HTTP_ADDRESSES", "OPTIONS", "PRODUCER")
#: Arguments of a Producer that the settings may give.
_PRODUCER_KEYS = (
    "retry_unknown", "sticky", "max_pending", "max_pending_bytes", "on_full", "linger",
)


class Problem(NamedTuple):
    """One thing that is wrong with the settings."""

    code: str  #: "shape", "key", "addresses", "options" or "producer"
    text: str
    hint: str  #: what to do


@dataclass(frozen=True)
class Settings:
    """Checked settings. Immutable."""

    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    config: Config = field(default_factory=Config)
    producer_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, mapping: object) -> Settings:
        """Check a mapping and keep what it says.

        Raises:
            ConfigError: it has a problem; the first of :func:`find_problems`.
        """
        problems = find_problems(mapping)
        if problems:
            raise ConfigError(f"{problems[0].text}: {problems[0].hint}")
        assert isinstance(mapping, Mapping)
        nsqds, lookupds = _addresses(mapping)
        return cls(
            tuple(nsqds), tuple(lookupds), _config(mapping.get("OPTIONS", {})),
            dict(mapping.get("PRODUCER", {})),
        )

    def make_producer(self) -> Producer:
        """Build a Producer; no socket yet.

        It publishes to the nsqds that are named, and only without any to those that nsqlookupds
        name: an nsqd beside the application is the usual place to publish to.
        """
        nsqds = self.nsqd_tcp_addresses
        return Producer(
            nsqds, lookupd_http_addresses=() if nsqds else self.lookupd_http_addresses,
            config=self.config, **self.producer_options,
        )

    def consumer_addresses(self) -> dict[str, Any]:
        """Arguments for a Consumer: it discovers where nsqlookupds are named.

        Not both kinds: an nsqd that is named and listed under another name would count twice.
        """
        if self.lookupd_http_addresses:
            return {"lookupd_http_addresses": self.lookupd_http_addresses}
        return {"nsqd_tcp_addresses": self.nsqd_tcp_addresses}


def find_problems(mapping: object) -> list[Problem]:
    """Look for everything that is wrong with a mapping of settings. No network."""
    if not isinstance(mapping, Mapping):
        return [Problem(
            "shape", f"NSQCLIENT must be a dict, not {type(mapping).__name__}",
            'write NSQCLIENT = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}',
        )]
    problems = [
        Problem("key", f"NSQCLIENT has an unknown key {key!r}", _suggest(str(key), _KEYS))
        for key in mapping if key not in _KEYS
    ]
    try:
        _addresses(mapping)
    except ConfigError as exc:
        problems.append(Problem(
            "addresses", f"NSQCLIENT: {exc}",
            "NSQD_TCP_ADDRESSES and LOOKUPD_HTTP_ADDRESSES are lists of host:port",
        ))
    return problems + _option_problems(mapping.get("OPTIONS", {})) + _producer_problems(
        mapping.get("PRODUCER", {}))


def _addresses(mapping: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    return check_addresses(
        mapping.get("NSQD_TCP_ADDRESSES", ()), mapping.get("LOOKUPD_HTTP_ADDRESSES", ())
    )


def _option_problems(options: object) -> list[Problem]:
    if not isinstance(options, Mapping):
        return [Problem("options", 'NSQCLIENT["OPTIONS"] must be a dict',
                        'write {"max_in_flight": 10}')]
    problems = [
        Problem("options", f'NSQCLIENT["OPTIONS"] has an unknown option {name!r}',
                _suggest(str(name), OPTIONS))
        for name in options if name not in OPTIONS
    ]
    if not problems:
        try:
            _config(options)
        except ConfigError as exc:
            problems.append(Problem("options", f'NSQCLIENT["OPTIONS"]: {exc}',
                                    "the page of options has types and ranges"))
    return problems


def _producer_problems(options: object) -> list[Problem]:
    if not isinstance(options, Mapping):
        return [Problem("producer", 'NSQCLIENT["PRODUCER"] must be a dict',
                        'write {"sticky": True}')]
    problems = [
        Problem("producer", f'NSQCLIENT["PRODUCER"] has an unknown argument {name!r}',
                _suggest(str(name), _PRODUCER_KEYS))
        for name in options if name not in _PRODUCER_KEYS
    ]
    if not problems:
        try:
            # It opens no socket and starts no thread before its first publish.
            Producer(["127.0.0.1:4150"], **options).close(0)
        except ConfigError as exc:
            problems.append(Problem("producer", f'NSQCLIENT["PRODUCER"]: {exc}',
                                    "see the arguments of Producer"))
    return problems


def _config(options: Mapping[str, Any]) -> Config:
    """Build the Config. Text stands for a value, as it comes from environment variables."""
    options = with_secrets(options, secrets_of(os.environ))
    texts = {
        name: value for name, value in options.items()
        if isinstance(value, str) and OPTIONS[name].kind not in ("str", "strategy")
    }
    values = {name: value for name, value in options.items() if name not in texts}
    return Config.from_strings(texts).replace(**values)


def _suggest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        name.upper(), names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known are {', '.join(names)}" if len(names) < 10 else "see the page of options"
