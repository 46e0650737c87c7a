"""Options: defaults, ranges, types, text, and what becomes of them in IDENTIFY."""

import copy
import dataclasses
import gc
import inspect
import pickle
import random
import re
import socket
import ssl
import warnings
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from nsqclient import Consumer, Producer, partitioned
from nsqclient.config import OPTIONS, Config, ConfigOptions, SharedOptions
from nsqclient.errors import ConfigError, InvalidChannelError, NSQError
from nsqclient.secrets import SECRETS, secrets_of, with_secrets
from nsqclient.version import __version__
from nsqclient.worker.registry import HandlerOptions
from tests.support.fuzz import fuzz

#: go-nsq's options with a range: default, lowest, highest (None: no limit), other valid values.
GO_RANGES = {
    "dial_timeout": (1.0, 0.001, None, ()),
    "read_timeout": (60.0, 0.1, 300.0, ()),
    "write_timeout": (1.0, 0.1, 300.0, ()),
    "lookupd_poll_interval": (60.0, 0.01, 300.0, ()),
    "lookupd_poll_jitter": (0.3, 0.0, 1.0, ()),
    "lookupd_poll_timeout": (3.0, 0.01, None, ()),
    "max_requeue_delay": (900.0, 0.0, 3600.0, ()),
    "default_requeue_delay": (90.0, 0.0, 3600.0, ()),
    "max_backoff_duration": (120.0, 0.0, 3600.0, ()),
    "backoff_multiplier": (1.0, 0.0, 3600.0, ()),
    "max_attempts": (5, 0, 65535, ()),
    "low_rdy_idle_timeout": (10.0, 1.0, 300.0, ()),
    "low_rdy_timeout": (30.0, 1.0, 300.0, ()),
    "rdy_redistribute_interval": (5.0, 0.001, 5.0, ()),
    "heartbeat_interval": (30.0, 1.0, None, (-1.0,)),
    "sample_rate": (0, 0, 99, ()),
    "deflate_level": (6, 1, 9, ()),
    "output_buffer_size": (16384, 64, None, (0, -1)),
    "output_buffer_timeout": (0.25, 0.025, 30.0, (0.0, -1.0)),
    "max_in_flight": (1, 0, None, ()),
    "msg_timeout": (0.0, 1.0, None, (0.0,)),
    "max_msg_size": (0, 4096, None, (0,)),
}
#: The defaults of go-nsq's others.
GO_OTHERS = {
    "local_addr": "", "backoff_strategy": "exponential", "client_id": "", "hostname": "",
    "user_agent": f"nsqclient/{__version__}", "topology_region": "", "topology_zone": "",
    "tls_v1": False, "tls_root_ca_file": "", "tls_insecure_skip_verify": False,
    "tls_min_version": "tls1.2", "deflate": False, "snappy": False, "auth_secret": "",
    "skip_lookupd_authorization": True,
}
KINDS = {name: option.kind for name, option in OPTIONS.items()}


# -- the table


def test_the_defaults_of_go_nsq_are_ours():
    ranges = {name: default for name, (default, *_) in GO_RANGES.items()}
    for name, default in (ranges | GO_OTHERS).items():
        assert getattr(Config(), name) == default, name
        assert isinstance(getattr(Config(), name), type(default)), name
        assert OPTIONS[name].default == default, name


def test_a_max_in_flight_of_1_is_distinguished_from_the_default():
    assert not Config().has_max_in_flight()
    assert not Config().replace(read_timeout=50).has_max_in_flight()
    assert not pickle.loads(pickle.dumps(Config())).has_max_in_flight()
    for config in (Config(max_in_flight=1), Config().replace(max_in_flight=1),
                   Config.from_strings({"max_in_flight": "1"})):
        assert config.has_max_in_flight()
        assert config.replace(read_timeout=50).has_max_in_flight()
        assert config.max_in_flight == Config().max_in_flight


def test_every_option_is_explained():
    of_go_nsq = {*GO_RANGES, *GO_OTHERS, "tls_cert", "tls_key", "tls_config"}
    assert [name for name, option in OPTIONS.items() if not option.help] == []
    ours = {name for name, option in OPTIONS.items() if option.help.startswith("ours: ")}
    assert ours == set(OPTIONS) - of_go_nsq


def test_both_ends_of_a_range_are_valid_and_what_is_outside_is_refused():
    for name, (_, low, high, also) in GO_RANGES.items():
        assert (OPTIONS[name].low, OPTIONS[name].also) == (low, also), name
        more = {"heartbeat_interval": -1} if name == "read_timeout" else {}
        for value in (low, high, *also):
            if value is not None:
                assert getattr(Config(**{name: value, **more}), name) == value
        step = 1 if KINDS[name] == "int" else 1e-6
        for value in {low - step, low if high is None else high + step, -2} - {low, *also}:
            with pytest.raises(ConfigError, match=rf"^{name} .*out of range: \d"):
                Config(**{name: value, **more})


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.0.0.1:0", "host:65535", "[::1]:0", "[fe80::1%eth0]:5000", "my-host.example",
])
def test_a_local_address_is_a_host_or_an_address(address):
    assert Config(local_addr=address).local_addr == address


@pytest.mark.parametrize("address", [
    "127.0.0.1:", ":0", "127.0.0.1:65536", "127.0.0.1:-1", "::1", "[]:0", "http://127.0.0.1:0",
    "a b", "a,b", "127.0.0.1:x", "300.1.1.1:0", "300.1.1.1", "1.2.3", "x y:0", "[::g]:0", "[x:y]:0",
    "a..b:0", "-a:0", "a@b:0", f"{'a' * 64}:0",
])
def test_a_wrong_local_address_is_refused_when_the_config_is_built(address):
    """Else each dial would fail, as if the network did."""
    with pytest.raises(ConfigError, match="local_addr"):
        Config(local_addr=address)


# -- types


@pytest.mark.parametrize("kinds, values", [
    (set(KINDS.values()) - {"context"}, (None, b"x", [], {}, ..., 1j)),
    (("int", "float", "duration", "str", "strategy"), (True,)),
    (("bool",), (1, 0, "true", "")),
    (("int",), (1.0, "1", float("nan"))),
    (("duration", "float"), ("1s", "1", "", float("nan"), float("inf"), -10**400, 10**400)),
    (("str",), (1, 0.5)),
    (("strategy",), ("linear", "")),
])
def test_a_value_of_a_wrong_type_is_refused(kinds, values):
    names = [name for name, kind in KINDS.items() if kind in kinds]
    assert names
    for name in names:
        for value in values:
            with pytest.raises(ConfigError, match=f"^{name} "):
                Config(**{name: value})


def test_tls_config_must_be_an_ssl_context():
    for value in (b"x", "ca.pem", True):
        with pytest.raises(ConfigError, match="tls_config must be an ssl.SSLContext"):
            Config(tls_v1=True, tls_config=value)


@pytest.mark.parametrize("options", [
    {"tls_root_ca_file": "ca.pem"}, {"tls_cert": "a.pem", "tls_key": "b.pem"},
    {"tls_server_name": "nsqd"}, {"tls_config": ssl.create_default_context()},
], ids=lambda options: next(iter(options)))
def test_details_of_tls_need_tls(options):
    """Authorities without tls_v1 are an error, not plain text."""
    with pytest.raises(ConfigError, match=f"^{next(iter(options))} without tls_v1"):
        Config(**options)
    assert Config(tls_v1=True, **options).tls_v1


@pytest.mark.parametrize("options", [
    {"tls_root_ca_file": "ca.pem"}, {"tls_cert": "a.pem", "tls_key": "b.pem"},
    {"tls_insecure_skip_verify": True}, {"tls_min_version": "tls1.3"},
], ids=lambda options: next(iter(options)))
def test_a_ready_context_excludes_the_other_tls_options(options):
    context = ssl.create_default_context()
    with pytest.raises(ConfigError, match="exclude each other"):
        Config(tls_v1=True, tls_config=context, **options)
    assert Config(tls_v1=True, tls_config=context, tls_server_name="n").tls_config is context


@pytest.mark.parametrize("make, said", [
    (lambda: Consumer("t", "c", print, max_attempts=3),
     "Consumer() has no argument 'max_attempts': it is an option: write"
     " config=Config(max_attempts=...)"),
    (lambda: Consumer("t", "c", print, max_atempts=3),
     "did you mean max_attempts? It is an option: write config=Config(max_attempts=...)"),
    (lambda: Producer(["127.0.0.1:1"], workers=3), "it is an argument of Consumer"),
    (lambda: Producer(["127.0.0.1:1"], publish_timeout=3), "config=Config(publish_timeout=...)"),
    (lambda: Config(on_full="raise"), "it is an argument of Producer"),
    (lambda: Config().replace(max_in_fligth=1), "did you mean max_in_flight?"),
    (lambda: Config(wxyz="s3cret"), "Config() has no argument 'wxyz'"),
])
def test_an_unknown_argument_says_what_was_meant_or_where_it_belongs(make, said):
    with pytest.raises(TypeError) as caught:
        make()
    text = str(caught.value)
    assert said in text and "\n" not in text and "s3cret" not in text
    assert caught.value.__context__ is None


@pytest.mark.parametrize("config, said", [
    ({"auth_secret": "s3cret", "snappy": True}, "write config=Config(auth_secret=..., snappy=...)"),
    ("max_attempts=3", "not a str: write config=Config(...)"),
    (Config, "not a type: write config=Config(...)"),
])
def test_a_config_that_is_none_says_what_to_write(config, said):
    """The constructor raises. The error shows no value, because it may be a secret."""
    for make in (lambda: Consumer("t", "c", print, nsqd_tcp_addresses=["x:1"], config=config),
                 lambda: Producer(["x:1"], config=config)):
        with pytest.raises(ConfigError) as caught:
            make()
        assert said in str(caught.value) and "s3cret" not in str(caught.value)


@pytest.mark.parametrize("make, said", [
    (lambda: Consumer("t", "c", print, nsqd_tcp_addresses=["x:1"], retry=3),
     "retry is a function, not a number: for 3 attempts write config=Config(max_attempts=3)"),
    (lambda: Consumer("t", print, nsqd_tcp_addresses=["x:1"]), "the channel is missing"),
])
def test_an_argument_of_a_wrong_kind_says_what_to_write(make, said):
    with pytest.raises((ConfigError, InvalidChannelError), match=re.escape(said)):
        make()


def test_a_consumer_that_was_never_started_is_warned_of():
    """As a file that was never closed; not if it was stopped, or if its arguments are wrong."""
    def make(**options):
        return Consumer("t", "c", print, nsqd_tcp_addresses=["x:1"], **options)

    with pytest.warns(ResourceWarning, match="<Consumer t/c 0 connections> was never started"):
        make()
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().stop()
        with pytest.raises(ConfigError):
            make(workers=0)
        gc.collect()


def test_the_signatures_of_the_public_classes_are_still_to_be_read():
    assert "max_in_flight" in inspect.signature(Consumer).parameters
    assert "retry_unknown" in inspect.signature(Producer).parameters
    assert list(inspect.signature(Config).parameters) == list(OPTIONS)


# -- milliseconds


@pytest.mark.parametrize("options", [
    {"msg_timeout": 60_000}, {"dial_timeout": 1000}, {"publish_timeout": 5000.0},
    {"nsqd_max_req_timeout": 3_600_000},
])
def test_a_duration_that_must_be_milliseconds_is_warned_about(options):
    (name, value), = options.items()
    with pytest.warns(UserWarning, match=f"write {name}={value / 1000:g}, else") as caught:
        Config(**options)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=name) as caught:
        Config().replace(**options)
    assert caught[0].filename == __file__


def test_a_long_duration_with_a_unit_is_no_warning():
    """A timedelta or text says that it is meant, and a copy does not ask again."""
    config = Config(msg_timeout=timedelta(hours=20))
    assert config.replace(max_attempts=1).msg_timeout == 72_000
    assert Config.from_strings({"msg_timeout": "20h"}).msg_timeout == 72_000
    Config(msg_timeout=7200, nsqd_max_req_timeout=86_400)


@pytest.mark.parametrize("options, why", [
    ({"read_timeout": 60_000}, "for milliseconds write 60"),
    ({"heartbeat_interval": timedelta(seconds=30_000)}, "for milliseconds write 30"),
])
def test_a_duration_that_is_refused_may_be_milliseconds(options, why):
    with pytest.raises(ConfigError, match=why):
        Config(**options)
    with pytest.raises(ConfigError) as caught:
        Config(read_timeout=301)
    assert "milliseconds" not in str(caught.value)


# -- options that depend on each other


@pytest.mark.parametrize("options, why", [
    ({"heartbeat_interval": 61}, "longer than read_timeout"),
    ({"read_timeout": 29}, "longer than read_timeout"),
    ({"deflate": True, "snappy": True}, "exclude each other"),
    ({"tls_min_version": "tls1.1"}, "tls_min_version"),
    ({"tls_min_version": ""}, "tls_min_version"),
    ({"tls_cert": "a.pem"}, "together"),
    ({"tls_key": "a.pem"}, "together"),
])
def test_contradicting_options_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        Config(**options)
    with pytest.raises(ConfigError, match=why):
        Config().replace(**options)


# -- a value


def test_a_config_is_an_immutable_value():
    config = Config(max_in_flight=5, msg_timeout=60)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.max_in_flight = 6
    copy = config.replace(max_attempts=9)
    assert (copy.max_in_flight, copy.max_attempts, config.max_attempts) == (5, 9, 5)
    other = Config(max_in_flight=5, msg_timeout=timedelta(minutes=1))
    assert config == other == pickle.loads(pickle.dumps(config)) != copy
    assert hash(config) == hash(other)


@pytest.mark.parametrize("secret", ["s3cret", "s3cret\n"])
def test_a_secret_is_never_shown(secret):
    config = Config(auth_secret=secret)
    assert "s3cret" not in repr(config) + str(config)
    assert config.replace(max_in_flight=2).auth_secret == secret
    assert SECRETS == tuple(name for name, option in OPTIONS.items() if option.secret)
    with pytest.raises(ConfigError) as caught:
        Config(auth_secret=secret.encode())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("content, secret", [
    (b"s3cret", "s3cret"), (b"s3cret\n", "s3cret"), (b"s3cret\r\n", "s3cret"),
    (b" s3 cret \n", " s3 cret "), (b"s3\ncret\n", "s3\ncret"),
])
def test_a_secret_may_come_from_a_file(tmp_path, name, content, secret):
    """Newlines at its end do not belong to it; it is read once, when the Config is built."""
    path = tmp_path / "secret"
    path.write_bytes(content)
    config = Config(**{f"{name}_file": str(path)})
    path.unlink()
    again = pickle.loads(pickle.dumps(config.replace(max_in_flight=2)))
    assert getattr(again, name) == secret
    assert "s3" not in repr(again)
    assert Config.from_strings({name: secret}) == config


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("content, reason", [
    (None, "No such file"), (b"", "empty"), (b"\n", "empty"), (b"x" * 70_000, "too long"),
])
def test_a_file_without_a_secret_is_named(tmp_path, name, content, reason):
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}_file.*{path}.*{reason}"):
        Config(**{f"{name}_file": str(path)})


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_and_its_file_exclude_each_other(tmp_path, name):
    """One of two would be left out without a word."""
    (tmp_path / "secret").write_text("s3cret1")
    with pytest.raises(ConfigError, match=f"{name} and {name}_file") as caught:
        Config(**{name: "s3cret2", f"{name}_file": str(tmp_path / "secret")})
    assert "s3cret" not in str(caught.value)


def test_each_secret_has_an_environment_variable():
    assert secrets_of({
        "NSQCLIENT_AUTH_SECRET": "a", "NSQCLIENT_TLS_KEY_PASSWORD_FILE": "b",
        "NSQCLIENT_AUTH_SECRET_FILE": "", "NSQCLIENT_MAX_IN_FLIGHT": "9",
    }) == {"auth_secret": "a", "tls_key_password_file": "b"}


@pytest.mark.parametrize("options, secrets", [
    ({}, {"auth_secret": "env"}),
    ({"tls_key": "k"}, {"auth_secret": "env", "tls_key_password": "flag"}),
    ({"Auth-Secret": "own"}, {}),
    ({"auth_secret_file": "own", "tls_key": "k"}, {"tls_key_password": "flag"}),
])
def test_secrets_are_added_where_options_give_none(options, secrets):
    """The options come first, then each of the others; a password is of use with a key only."""
    added = with_secrets(
        options, {"tls_key_password": "flag"},
        {"auth_secret": "env", "tls_key_password_file": "env"},
    )
    assert added == options | secrets


def test_a_secret_that_is_no_text_is_refused():
    """Bytes of a command line are kept; what cannot be sent is refused without showing it."""
    assert Config(auth_secret="s3cret\udcff").auth_secret.endswith("\udcff")
    with pytest.raises(ConfigError, match="not text") as caught:
        Config(auth_secret="s3cret\ud800")
    assert caught.value.__cause__ is None and "s3cret" not in str(caught.value)


# -- text


@pytest.mark.parametrize("name, text, value", [
    ("max_in_flight", "200", 200), ("Max-In-Flight ", "200", 200),
    ("msg_timeout", "1m30s", 90.0), ("msg_timeout", "0", 0.0), ("heartbeat_interval", "-1", -1.0),
    ("output_buffer_size", "-1", -1), ("lookupd_poll_jitter", "0.5", 0.5),
    ("tls_v1", "", True), ("tls_v1", "true", True), ("tls_v1", "T", True), ("tls_v1", "1", True),
    ("skip_lookupd_authorization", "false", False), ("snappy", "F", False), ("snappy", "0", False),
    ("backoff_strategy", "full_jitter", "full_jitter"), ("auth_secret", "a=b, c", "a=b, c"),
])
def test_from_strings_takes_options_of_command_lines(name, text, value):
    config = Config.from_strings({name: text})
    assert config == Config(**{name.strip().lower().replace("-", "_"): value})


@pytest.mark.parametrize("name, text", [
    ("max_in_flight", ""), ("max_in_flight", "1.5"), ("max_in_flight", "-1"),
    ("max_in_flight", "9" * 5000), ("max_attempts", "9" * 400), ("msg_timeout", "60"),
    ("msg_timeout", "9" * 400 + "s"), ("dial_timeout", "-1"), ("lookupd_poll_jitter", "nan"),
    ("tls_v1", "yes"), ("backoff_strategy", "linear"),
])
def test_from_strings_names_the_option_of_a_bad_value(name, text):
    with pytest.raises(ConfigError, match=name):
        Config.from_strings({name: text})


@pytest.mark.parametrize("name", ["max_in_flight", "tls_v1", "auth_secret"])
def test_from_strings_refuses_other_types(name):
    for value in (None, 5, b"5"):
        with pytest.raises(ConfigError, match=f"option {name}: .*text"):
            Config.from_strings({name: value})


@pytest.mark.parametrize("name, hint", [
    ("max-inflight", "did you mean max_in_flight?"),
    ("auth_secret=s3cret", "unknown option 'auth_secret', followed by other text; did you mean"
     " auth_secret?"),
    ("xyzzy", "unknown option 'xyzzy'"),
    ("", "unknown option ''"),
])
def test_an_unknown_name_is_reported_with_a_similar_one(name, hint):
    with pytest.raises(ConfigError) as caught:
        Config.from_strings({name: "1"})
    assert str(caught.value).endswith(hint)


@fuzz
@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.text(max_size=12), max_size=4))
def test_any_text_gives_a_config_or_a_config_error(options):
    try:
        Config.from_strings(options)
    except NSQError as exc:
        assert isinstance(exc, ConfigError)


# -- IDENTIFY


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "box.example.org")


def test_the_identify_payload_has_these_defaults(host):
    assert Config().identify_payload() == {
        "feature_negotiation": True,
        "client_id": "box",
        "hostname": "box.example.org",
        "user_agent": f"nsqclient/{__version__}",
        "heartbeat_interval": 30000,
        "sample_rate": 0,
        "output_buffer_size": 16384,
        "output_buffer_timeout": 250,
        "msg_timeout": 0,
        "tls_v1": False,
        "deflate": False,
        "snappy": False,
    }


@pytest.mark.parametrize("options, sent", [
    ({"heartbeat_interval": -1}, {"heartbeat_interval": -1}),
    ({"output_buffer_timeout": 0.025}, {"output_buffer_timeout": 25}),
    ({"output_buffer_size": -1}, {"output_buffer_size": -1}),
    ({"msg_timeout": 1.0004}, {"msg_timeout": 1000}),
    ({"client_id": "me", "hostname": "h"}, {"client_id": "me", "hostname": "h"}),
    ({"topology_region": "r", "topology_zone": "z"},
     {"topology_region": "r", "topology_zone": "z"}),
    ({"deflate": True}, {"deflate": True, "deflate_level": 6}),
    ({"deflate_level": 3}, {}),
    ({"tls_v1": True, "snappy": True}, {"tls_v1": True, "snappy": True}),
    ({"auth_secret": "s3cret", "max_in_flight": 9, "max_msg_size": 5000}, {}),
])
def test_the_identify_payload_has_whole_milliseconds(host, options, sent):
    assert Config(**options).identify_payload() == {**Config().identify_payload(), **sent}
    for name, value in sent.items():
        payload = Config(**options).identify_payload()[name]
        assert type(payload) is type(value)


# -- backoff


def test_a_callable_strategy_gets_attempt_multiplier_and_random_source():
    calls = []
    config = Config(backoff_strategy=lambda *args: calls.append(args) or 7.0, backoff_multiplier=3)
    rng = random.Random()
    assert config.backoff_delay(4, rng) == 7.0
    assert calls == [(4, 3.0, rng)]


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy])
def test_a_consumer_or_producer_is_made_in_each_process(copied):
    """Copying and pickling raise, because both have threads and sockets."""
    consumer = Consumer("t", "c", print, nsqd_tcp_addresses=["x:1"])
    with Producer(["x:1"]) as producer:
        for each in (consumer, producer):
            with pytest.raises(TypeError, match="make one in each process"):
                copied(each)


#: Kind of an option -> the type of its argument.
TYPES = {
    "duration": "Duration", "int": "int", "float": "float", "bool": "bool", "str": "str",
    "strategy": "Union[str, BackoffStrategy]", "context": "Union[ssl.SSLContext, None]",
}


def types_of(cls):
    return {name: each.__forward_arg__ for name, each in cls.__annotations__.items()}


def test_every_option_has_its_type():
    expected = {name: TYPES[option.kind] for name, option in OPTIONS.items()}
    assert types_of(ConfigOptions) == expected


def test_a_handler_takes_arguments_of_a_consumer():
    parameters = {**inspect.signature(Consumer).parameters,
                  **inspect.signature(partitioned.Consumer).parameters}
    own = types_of(HandlerOptions).keys() - types_of(SharedOptions).keys()
    for name in own:
        assert types_of(HandlerOptions)[name] == parameters[name].annotation, name


def test_a_dict_in_place_of_the_options_says_what_to_write():
    with pytest.raises(TypeError, match=r"write Config\(max_in_flight=\.\.\.\)"):
        Config({"max_in_flight": 5})
