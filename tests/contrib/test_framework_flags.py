"""What Django's and Flask's commands read beside their command lines, and what wins."""

import pytest

from nsqclient.cli.worker import changed_setting, read_flags
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.worker.loading import UsageError

SETTING = {
    "NSQD_TCP_ADDRESSES": ["s:4150"], "LOOKUPD_HTTP_ADDRESSES": ["s:4161"],
    "OPTIONS": {"max_attempts": 9, "auth_secret": "of the setting", "snappy": True},
    "MIDDLEWARE": ["json.loads"],
}


def read_settings(mapping, parsed):
    return Settings.read(changed_setting(mapping, parsed.values))


@pytest.fixture
def read(monkeypatch, tmp_path):
    def run(given=(), environ=(), file=""):
        for name, value in dict(environ).items():
            monkeypatch.setenv(name, value)
        if file:
            (tmp_path / "nsq.toml").write_text(file)
            given = {"config": str(tmp_path / "nsq.toml"), **dict(given)}
        return read_flags(dict(given))

    return run


def test_each_source_wins_over_those_behind_it(read):
    file = "[worker]\nprocesses = 2\n"
    assert read().values["processes"] == 0
    assert read((), (), file).values["processes"] == 2
    environ = {"NSQ_PROCESSES": "3"}
    assert read({"processes": 4}, environ, file).values["processes"] == 4
    assert read({"processes": None, "topic": []}, environ, file).values["processes"] == 3
    assert read({"stop-timeout": "0.5s", "check": True}).values["stop-timeout"] == 0.5


def test_the_setting_comes_last(read):
    found = read_settings(SETTING, read())
    assert found.lookupd_http_addresses == ("s:4161",) and found.middleware == ("json.loads",)
    assert found.config.max_attempts == 9


def test_addresses_replace_those_of_the_setting(read):
    found = read_settings(SETTING, read((), {"NSQD_TCP_ADDRESSES": "e:4150,f:4150"}))
    assert found.consumer_addresses() == {"nsqd_tcp_addresses": ("e:4150", "f:4150")}


def test_options_are_changed_one_by_one(read):
    config = read_settings(SETTING, read({"consumer-opt": ["max_attempts,3"]})).config
    assert (config.max_attempts, config.snappy, config.auth_secret) == (3, True, "of the setting")


def test_a_secret_of_a_file_replaces_that_of_the_setting(read, tmp_path):
    (tmp_path / "secret").write_text("of the file\n")
    parsed = read((), {"NSQ_AUTH_SECRET_FILE": str(tmp_path / "secret")})
    for options in (SETTING["OPTIONS"], {"auth_secret_file": "/no/such/file"}):
        found = read_settings({**SETTING, "OPTIONS": options}, parsed)
        assert found.config.auth_secret == "of the file"


def test_a_password_without_a_key_is_left_out(read, tmp_path):
    """A variable for all commands may have no meaning for one of them."""
    (tmp_path / "secret").write_text("x")
    parsed = read((), {"NSQ_TLS_KEY_PASSWORD_FILE": str(tmp_path / "secret")})
    assert read_settings(SETTING, parsed).config.tls_key_password == ""


def test_middleware_replaces_that_of_the_setting(read):
    found = read_settings(SETTING, read((), (), '[worker]\nmiddleware = ["a.b", "c.d"]\n'))
    assert found.middleware == ("a.b", "c.d")


@pytest.mark.parametrize("given, environ, file, said", [
    ({}, {"NSQ_PROCESSES": "many"}, "", r"\$NSQ_PROCESSES: --processes: \'many\'"),
    ({"consumer-opt": ["max_atempts,3"]}, {}, "", "'max_atempts': did you mean max_attempts"),
    ({"nsqd-tcp-address": ["a:1"], "lookupd-http-address": ["a:2"]}, {}, "", "not both"),
])
def test_a_mistake_is_a_usage_error(read, given, environ, file, said):
    with pytest.raises(UsageError, match=said):
        read(given, environ, file)


def test_a_file_that_cannot_be_read_is_an_error(read):
    with pytest.raises(ConfigError, match="No such file") as caught:
        read({"config": "/no/such/file"})
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize("mapping", [None, {"OPTIONS": 1, "NSQD_TCP_ADDRESSES": ["a:1"]}])
def test_a_wrong_setting_is_reported_as_ever(read, mapping):
    with pytest.raises(ConfigError, match="NSQCLIENT"):
        read_settings(mapping, read({"consumer-opt": ["max_attempts,3"]}))
