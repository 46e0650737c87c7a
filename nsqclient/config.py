"""The table of all options: default, range, unit, IDENTIFY field and description.

Names are as in go-nsq; options that go-nsq does not have are marked "ours".
"""

from __future__ import annotations

import copy
import dataclasses
import random
import re
import socket
import ssl
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Union

from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import parse_local_address
from nsqclient.runtime.arguments import check_names, checks_names, closest, note_names
from nsqclient.runtime.deadline import Duration, format_duration, parse_duration, to_seconds
from nsqclient.runtime.delays import exponential, full_jitter
from nsqclient.runtime.tls import client_context
from nsqclient.secrets import SECRETS, read_secret
from nsqclient.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: A backoff strategy: (attempt, multiplier in seconds, random source) -> seconds.
BackoffStrategy = Callable[[int, float, random.Random], float]

STRATEGIES: dict[str, BackoffStrategy] = {"exponential": exponential, "full_jitter": full_jitter}


class Option(NamedTuple):
    """One row of the table."""

    kind: str  #: "duration", "int", "float", "bool", "str", "strategy" or "context"
    default: Any
    help: str
    low: float | None = None  #: smallest value (seconds for durations); None: no limit
    high: float | None = None  #: largest value
    also: tuple[float, ...] = ()  #: single values that are valid outside the range
    identify: bool = False  #: sent in IDENTIFY under its name, durations in ms
    secret: bool = False  #: never shown in repr or logs
    looks_like_ms: float | None = None  #: a plain number from here on is warned about; None: never


class _NotGiven(int):
    """The default of a number, distinguished from the same number when it is given."""


def _option(kind: str, default: Any, help: str, **more: Any) -> Any:
    option = Option(kind, default, help, **more)
    return dataclasses.field(default=default, metadata={"option": option}, repr=not option.secret)


def _duration(default: float, help: str, low: float = 0.0, high: float | None = None,
              also: tuple[float, ...] = (), identify: bool = False,
              looks_like_ms: float = 1000.0) -> Any:
    return _option("duration", default, help, low=low, high=high, also=also, identify=identify,
                   looks_like_ms=looks_like_ms if high is None else None)


def _flag(default: bool, help: str, identify: bool = False) -> Any:
    return _option("bool", default, help, identify=identify)


def _text(default: str, help: str, identify: bool = False, secret: bool = False) -> Any:
    return _option("str", default, help, identify=identify, secret=secret)


class SharedOptions(TypedDict, total=False):
    """The keyword arguments of ``Config`` and ``@nsqclient.handler``. A test compares them."""

    dial_timeout: Duration
    read_timeout: Duration
    write_timeout: Duration
    local_addr: str
    lookupd_poll_interval: Duration
    lookupd_poll_jitter: float
    lookupd_poll_timeout: Duration
    skip_lookupd_authorization: bool
    lookupd_authorized_hosts: str
    max_attempts: int
    drain_patience: Duration
    default_requeue_delay: Duration
    max_requeue_delay: Duration
    ordered_retry_delay: Duration
    ordered_max_retry_delay: Duration
    backoff_strategy: Union[str, BackoffStrategy]
    max_backoff_duration: Duration
    backoff_multiplier: Duration
    low_rdy_idle_timeout: Duration
    low_rdy_timeout: Duration
    rdy_redistribute_interval: Duration
    rdy_share_of_timeout: float
    client_id: str
    hostname: str
    user_agent: str
    heartbeat_interval: Duration
    sample_rate: int
    output_buffer_size: int
    output_buffer_timeout: Duration
    msg_timeout: Duration
    topology_region: str
    topology_zone: str
    tls_v1: bool
    tls_root_ca_file: str
    tls_cert: str
    tls_key: str
    tls_key_password: str
    tls_key_password_file: str
    tls_insecure_skip_verify: bool
    tls_min_version: str
    tls_server_name: str
    tls_config: Union[ssl.SSLContext, None]
    deflate: bool
    deflate_level: int
    snappy: bool
    auth_secret: str
    auth_secret_file: str
    max_msg_size: int
    max_queued_bytes: int
    nsqd_max_msg_size: int
    nsqd_max_body_size: int
    nsqd_max_req_timeout: Duration
    publish_timeout: Duration
    max_connections: int
    idle_timeout: Duration
    partition_try_timeout: Duration
    max_reconnect_delay: Duration


class ConfigOptions(SharedOptions, total=False):
    max_in_flight: int


#: The arguments of ``nsqclient.partitioned.Consumer`` that ``Consumer`` does not have.
PARTITIONED_ARGUMENTS = (
    "ordered", "on_blocked", "partitions", "start_at", "with_offsets", "desired_tag",
    "header_filter",
)
note_names("nsqclient.partitioned.Consumer", PARTITIONED_ARGUMENTS,
           "an argument of nsqclient.partitioned.Consumer")
note_names("nsqclient.partitioned.Producer", ("sharding",),
           "an argument of nsqclient.partitioned.Producer")


@checks_names("an option: write config=Config({name}=...)")
@dataclass(frozen=True)
class Config:
    """The options of a Consumer, Producer or Connection. Immutable, and checked when created.

    A duration is a number of seconds or a ``timedelta``, and is stored as a float. Create a Config
    with ``Config(x=1)``, ``config.replace(x=1)`` or ``Config.from_strings({"x": "1s"})``.

    Raises:
        ConfigError: an option has a wrong type, or is out of range.
        TypeError: an option is unknown; the error suggests a similar name.

    Warns:
        UserWarning: a number of seconds that was probably meant in milliseconds. A ``timedelta``,
            or text with a unit, is not warned of.
    """

    # -- connection
    dial_timeout: float = _duration(1.0, "timeout for connecting (TCP)", low=0.001)
    read_timeout: float = _duration(
        60.0, "longest time without data before a connection is closed as dead",
        low=0.1, high=300.0)
    write_timeout: float = _duration(
        1.0, "longest time for which a write may make no progress", low=0.1, high=300.0)
    local_addr: str = _text("", "local host or host:port to connect from; port 0: any port")

    # -- discovery
    lookupd_poll_interval: float = _duration(
        60.0, "interval between queries to the nsqlookupds", low=0.01, high=300.0)
    lookupd_poll_jitter: float = _option(
        "float", 0.3, "maximum random delay added to lookupd_poll_interval, as a fraction of it",
        low=0.0, high=1.0)
    lookupd_poll_timeout: float = _duration(3.0, "total timeout of a lookup request", low=0.01)
    skip_lookupd_authorization: bool = _flag(
        True, "send auth_secret to nsqlookupds as a Bearer token (the name is inverted, as in"
        " go-nsq)")
    lookupd_authorized_hosts: str = _text(
        "", "ours: comma-separated hosts or domains (.example.com) of further nsqlookupds that may"
        " receive auth_secret when a configured nsqlookupd lists them")

    # -- handling
    max_in_flight: int = _option(
        "int", _NotGiven(1), "maximum number of messages in flight, over all nsqds", low=0)
    max_attempts: int = _option(
        "int", 5, "maximum number of attempts before a message is given up; 0: no limit",
        low=0, high=65535)
    drain_patience: float = _duration(
        60.0, "ours: time for which an nsqd may not answer, or its messages not arrive, before a"
        " drain fails", low=0.1, looks_like_ms=30_000.0)
    default_requeue_delay: float = _duration(
        90.0, "delay of an automatic requeue, multiplied by the number of attempts", high=3600.0)
    max_requeue_delay: float = _duration(
        900.0, "maximum delay of an automatic requeue", high=3600.0)
    ordered_retry_delay: float = _duration(
        1.0, "ours: delay before the first retry of a failed ordered message; doubles with each"
        " further retry", high=3600.0)
    ordered_max_retry_delay: float = _duration(
        60.0, "ours: maximum delay before a retry of an ordered message", high=3600.0)
    backoff_strategy: Union[str, BackoffStrategy] = _option(
        "strategy", "exponential",
        "exponential, full_jitter, or a callable, which must not block because a lock is held")
    max_backoff_duration: float = _duration(120.0, "maximum backoff; 0: no backoff", high=3600.0)
    backoff_multiplier: float = _duration(1.0, "base delay of the backoff", high=3600.0)

    # -- RDY
    low_rdy_idle_timeout: float = _duration(
        10.0, "time without messages after which a connection may lose its RDY",
        low=1.0, high=300.0)
    low_rdy_timeout: float = _duration(
        30.0, "maximum time for which a connection keeps RDY 1 while others have RDY 0",
        low=1.0, high=300.0)
    rdy_redistribute_interval: float = _duration(
        5.0, "interval at which RDY is redistributed", low=0.001, high=5.0)

    rdy_share_of_timeout: float = _option(
        "float", 0.1, "ours: share of msg_timeout within which the messages in flight should be"
        " handled: slow handlers get fewer than max_in_flight; 0: always max_in_flight",
        low=0.0, high=1.0)

    # -- IDENTIFY
    client_id: str = _text("", "name of the client; empty: the short host name", identify=True)
    hostname: str = _text("", "host name of the client; empty: that of the machine", identify=True)
    user_agent: str = _text(
        f"nsqclient/{__version__}", "name and version of the client", identify=True)
    heartbeat_interval: float = _duration(
        30.0, "interval between nsqd's heartbeats; -1: no heartbeats (producers only)", low=1.0,
        also=(-1.0,), identify=True)
    sample_rate: int = _option(
        "int", 0, "percentage of messages to receive; 0: all", low=0, high=99,
        identify=True)
    output_buffer_size: int = _option(
        "int", 16384, "size of nsqd's output buffer for the connection, in bytes; 0: nsqd's"
        " default, -1: no buffer", low=64,
        also=(0, -1), identify=True)
    output_buffer_timeout: float = _duration(
        0.25, "maximum time that data stays in nsqd's output buffer; 0: nsqd's default, -1: no"
        " limit", low=0.025, high=30.0, also=(0.0, -1.0), identify=True)
    msg_timeout: float = _duration(
        0.0, "time after which nsqd requeues a message without a response; 0: nsqd's default",
        low=1.0, also=(0.0,), identify=True, looks_like_ms=10_000.0)
    topology_region: str = _text(
        "", "region of the client, for nsqds with topology-aware consumption", identify=True)
    topology_zone: str = _text(
        "", "zone of the client, for nsqds with topology-aware consumption", identify=True)

    # -- encryption, compression, authentication
    tls_v1: bool = _flag(False, "use TLS", identify=True)
    tls_root_ca_file: str = _text(
        "", "PEM file with the trusted certificate authorities; empty: those of the system")
    tls_cert: str = _text("", "PEM file with the client certificate")
    tls_key: str = _text("", "PEM file with the private key of the client certificate")
    tls_key_password: str = _text("", "ours: password of an encrypted tls_key", secret=True)
    tls_key_password_file: str = _text(
        "", "ours: file with the password of tls_key, read when the Config is created")
    tls_insecure_skip_verify: bool = _flag(False, "do not verify nsqd's certificate")
    tls_min_version: str = _text("tls1.2", "minimum TLS version: tls1.2 or tls1.3")
    tls_server_name: str = _text(
        "", "ours: host name to check in nsqd's certificate; empty: the host of nsqd's address")
    tls_config: Union[ssl.SSLContext, None] = _option(
        "context", None, "an ssl.SSLContext, instead of the options for files, verification and"
        " version")
    deflate: bool = _flag(False, "compress with deflate", identify=True)
    deflate_level: int = _option(
        "int", 6, "compression level of deflate", low=1, high=9, identify=True)
    snappy: bool = _flag(False, "compress with snappy", identify=True)
    auth_secret: str = _text("", "secret to send with AUTH if nsqd requires it", secret=True)
    auth_secret_file: str = _text(
        "", "ours: file with auth_secret, read when the Config is created")

    # -- limits
    max_msg_size: int = _option(
        "int", 0, "maximum size of a received frame, in bytes; 0: 64 MiB", low=4096, also=(0,))
    max_queued_bytes: int = _option(
        "int", 256 * 1024 * 1024,
        "ours: maximum total size of queued messages, in bytes, over all nsqds; when it is"
        " exceeded, RDY is 0 until half of it is free",
        low=1)
    nsqd_max_msg_size: int = _option(
        "int", 1024 * 1024, "ours: --max-msg-size of nsqd in bytes, which nsqd does not announce",
        low=1)
    nsqd_max_body_size: int = _option(
        "int", 5 * 1024 * 1024,
        "ours: --max-body-size of nsqd in bytes, which nsqd does not announce", low=16)
    nsqd_max_req_timeout: float = _duration(
        3600.0, "ours: --max-req-timeout of nsqd, which nsqd does not announce",
        looks_like_ms=300_000.0)

    # -- ours
    publish_timeout: float = _duration(
        10.0, "ours: total timeout of a publish for which you pass no timeout", low=0.001)
    max_connections: int = _option(
        "int", 64, "ours: maximum number of connections to each nsqd for publish(), publish_many()"
        " and ping(); a publish above it waits for one", low=1, high=10_000)
    idle_timeout: float = _duration(
        60.0, "ours: time after which a connection of publish() that is not used is closed; one"
        " for each nsqd stays", low=1.0)
    partition_try_timeout: float = _duration(
        3.0, "ours: timeout of one attempt of a publish to a partitioned topic, after which its"
        " connection is closed", low=0.01)
    max_reconnect_delay: float = _duration(
        60.0, "ours: maximum delay before an address is dialed again", low=0.01,
        looks_like_ms=10_000.0)

    if TYPE_CHECKING:  # arguments may be timedeltas; the fields are floats
        def __init__(self, **options: Unpack[ConfigOptions]) -> None: ...

    def __post_init__(self) -> None:
        self._check(OPTIONS)

    def _check(self, typed: Iterable[str]) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            object.__setattr__(self, name, _checked(name, option, value))
            if name in typed and _looks_like_ms(option, value):
                warnings.warn(
                    f"{name}={value:g} is {format_duration(value)}: durations are seconds. For"
                    f" milliseconds write {name}={value / 1000:g}, else give a timedelta",
                    stacklevel=_depth_of_caller(),
                )
        for name in SECRETS:
            self._read_secret(name)
        if self.local_addr:
            parse_local_address(self.local_addr)
        if 0 < self.read_timeout < self.heartbeat_interval:
            raise ConfigError(
                f"heartbeat_interval of {self.heartbeat_interval:g} s must not be longer than"
                f" read_timeout ({self.read_timeout:g} s)"
                f"{_in_seconds(OPTIONS['heartbeat_interval'], self.heartbeat_interval)}"
            )
        if self.deflate and self.snappy:
            raise ConfigError("deflate and snappy exclude each other: choose one")
        if self.tls_min_version not in ("tls1.2", "tls1.3"):
            raise ConfigError(f"tls_min_version {self.tls_min_version!r}: use tls1.2 or tls1.3")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("tls_cert and tls_key go together: give both or none")
        self._check_tls()
        try:
            self.auth_secret.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # "from None": it holds the secret
            raise ConfigError("auth_secret has characters that are not text") from None

    def _read_secret(self, name: str) -> None:
        """Read a secret from its file, and forget the file: ``replace`` copies the secret."""
        path = getattr(self, f"{name}_file")
        if not path:
            return
        if getattr(self, name):
            raise ConfigError(f"{name} and {name}_file exclude each other: give one of them")
        try:
            object.__setattr__(self, name, read_secret(path))
        except ValueError as exc:
            raise ConfigError(f"{name}_file: {exc}") from None
        object.__setattr__(self, f"{name}_file", "")

    def _check_tls(self) -> None:
        for name in ("tls_root_ca_file", "tls_cert", "tls_server_name", "tls_config"):
            if getattr(self, name) and not self.tls_v1:
                raise ConfigError(f"{name} without tls_v1 would be plain text: set tls_v1 too")
        if self.tls_config is None:
            return
        for name in _IN_CONTEXT:
            if getattr(self, name) != OPTIONS[name].default:
                raise ConfigError(f"tls_config and {name} exclude each other: use the context")

    @classmethod
    def from_strings(cls, options: Mapping[str, str]) -> Config:
        """Create a Config from texts, as on command lines and in Spark options.

        Names may contain ``-`` instead of ``_``. Durations are written as in Go (``1m30s``). An
        empty text sets a bool to true.

        Raises:
            ConfigError: a name is unknown, or a text is not a valid value.
        """
        values: dict[str, Any] = {}
        for key, text in options.items():
            name = key.strip().lower().replace("-", "_")
            option = OPTIONS.get(name)
            if option is None:
                raise _unknown(key)
            if not isinstance(text, str):
                raise ConfigError(f"option {name}: give text, not {type(text).__name__}")
            try:
                values[name] = _parsed(option, text)
            except ValueError as exc:
                raise ConfigError(f"option {name}: {exc}") from exc
        return cls().changed(values, ())

    def replace(self, **changes: Unpack[ConfigOptions]) -> Config:
        """Return a checked copy with some options changed. Raises and warns as ``Config`` does."""
        check_names("Config", changes)
        return self.changed(changes, changes)

    def changed(self, changes: Mapping[str, Any], typed: Iterable[str]) -> Config:
        """Return a checked copy with changes; warns only of values that the caller ``typed``."""
        copied = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(copied, name, value)
        copied._check(typed)
        return copied

    def has_max_in_flight(self) -> bool:
        """Return True if ``max_in_flight`` was given, even with its default value."""
        return not isinstance(self.max_in_flight, _NotGiven)

    def with_default_in_flight(self, count: int) -> Config:
        """Return a copy with another default of ``max_in_flight``, which counts as not given."""
        return self.changed({"max_in_flight": _NotGiven(count)}, ())

    def identify_payload(self) -> dict[str, Any]:
        """Build the JSON object of IDENTIFY. Durations become whole milliseconds."""
        payload: dict[str, Any] = {"feature_negotiation": True}
        for name, option in OPTIONS.items():
            if not option.identify:
                continue
            value = getattr(self, name)
            if option.kind == "duration":
                value = -1 if value == -1 else round(value * 1000)
            payload[name] = value
        host = socket.gethostname()
        payload["client_id"] = self.client_id or host.split(".")[0]
        payload["hostname"] = self.hostname or host
        for name in ("topology_region", "topology_zone"):
            if not payload[name]:
                del payload[name]
        if not self.deflate:
            del payload["deflate_level"]
        return payload

    def backoff_delay(self, attempt: int, rng: random.Random) -> float:
        """Return the backoff in seconds after ``attempt`` consecutive failures."""
        strategy = self.backoff_strategy
        chosen = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
        return chosen(attempt, self.backoff_multiplier, rng)


#: The table: name -> Option, in the order of the fields.
OPTIONS: dict[str, Option] = {
    field.name: field.metadata["option"] for field in dataclasses.fields(Config)
}

#: Options that an SSLContext replaces.
_IN_CONTEXT = (
    "tls_root_ca_file", "tls_cert", "tls_key", "tls_key_password", "tls_insecure_skip_verify",
    "tls_min_version",
)


def _unknown(key: str) -> ConfigError:
    # Only the name: a secret may follow it, as in "auth_secret=...".
    name = re.split(r"[^\w.-]", key, maxsplit=1)[0]
    close = closest(name.replace("-", "_"), OPTIONS)
    hint = f"; did you mean {close}?" if close else ""
    if name != key:
        hint = ", followed by other text" + hint
    return ConfigError(f"unknown option {name!r}{hint}")


def checked_config(config: object) -> Config:
    """Return the argument ``config`` of a Consumer or Producer. Raises ConfigError."""
    if config is None:
        return Config()
    if isinstance(config, Config):
        return config
    # Without the values: one may be a secret.
    shown = ", ".join(f"{name}=..." for name in config) if isinstance(config, Mapping) else "..."
    raise ConfigError(
        f"config must be a Config, not a {type(config).__name__}: write config=Config({shown})")


def _checked(name: str, option: Option, value: Any) -> Any:
    """Return ``value`` in its canonical type. Raises ConfigError."""
    if option.kind == "duration":
        value = to_seconds(value, name, minimum=float("-inf"))
    elif option.kind in ("int", "float"):
        wanted = int if option.kind == "int" else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ConfigError(f"{name} must be a number ({option.kind}), not {value!r}")
    elif option.kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")
    elif option.kind == "str" and not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    elif option.kind == "strategy" and not (
        callable(value) or isinstance(value, str) and value in STRATEGIES
    ):
        raise ConfigError(f"{name} {value!r}: use {', '.join(STRATEGIES)} or a callable")
    elif option.kind == "context" and not isinstance(value, (ssl.SSLContext, type(None))):
        raise ConfigError(f"{name} must be an ssl.SSLContext, not {type(value).__name__}")
    if option.kind in ("duration", "int", "float") and value not in option.also:
        unit = " s" if option.kind == "duration" else ""
        if not (option.low is None or value >= option.low) or not (
            option.high is None or value <= option.high
        ):
            low = "" if option.low is None else f"{option.low:g}"
            high = "" if option.high is None else f"{option.high:g}"
            also = "".join(f" or {extra:g}" for extra in option.also)
            shown = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(
                f"{name} of {shown}{unit} is out of range: {low}..{high}{also}"
                f"{_in_seconds(option, value)}"
            )
    return value


def _looks_like_ms(option: Option, value: object) -> bool:
    return (
        option.looks_like_ms is not None and isinstance(value, (int, float))
        and value >= option.looks_like_ms
    )


def _in_seconds(option: Option, value: float) -> str:
    """Return advice if a duration that is too long would be valid in milliseconds."""
    if option.kind != "duration" or value < 1000:
        return ""
    seconds = value / 1000
    if seconds < (option.low or 0.0) or (option.high is not None and seconds > option.high):
        return ""
    return f"; durations are seconds: for milliseconds write {seconds:g}"


def _depth_of_caller() -> int:
    """Return the ``stacklevel`` of the first caller outside of the package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nsqclient."):
        depth, frame = depth + 1, frame.f_back
    return depth


def _parsed(option: Option, text: str) -> Any:
    if option.kind == "duration":
        return parse_duration(text) if text not in ("-1", "0") else float(text)
    if option.kind == "int":
        return int(text)
    if option.kind == "float":
        return float(text)
    if option.kind == "bool":
        lowered = text.lower()
        if lowered in ("", "1", "t", "true"):
            return True
        if lowered in ("0", "f", "false"):
            return False
        raise ConfigError(f"{text!r} is not true or false")
    return text


def build_tls_context(config: Config) -> ssl.SSLContext:
    """Return the SSL context that the ``tls_*`` options describe.

    Raises:
        TLSError: names the file that cannot be used.
    """
    if config.tls_config is not None:
        return config.tls_config
    return client_context(
        ca_file=config.tls_root_ca_file,
        cert=config.tls_cert,
        key=config.tls_key,
        key_password=config.tls_key_password,
        min_version=config.tls_min_version,
        verify=not config.tls_insecure_skip_verify,
    )
