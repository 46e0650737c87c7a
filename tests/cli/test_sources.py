"""Where the values of flags come from: command line, environment, configuration file, default."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nsqclient.cli import COMMANDS, main
from nsqclient.cli.catalog import all_flag_sets
from nsqclient.cli.goflags import (
    BOOL, DURATION, INT, STRING, STRINGS, CommandLineError, FlagError, FlagSet,
)
from nsqclient.cli.sources import misspelt_variables, variables, with_sources
from nsqclient.cli.tool_flags import OPTIONS
from tests.support.processes import user_environment


@pytest.fixture
def flags() -> FlagSet:
    """Flags of each kind, under the name of a command that exists."""
    flags = FlagSet("nsq_tail")
    flags.add("nsqd-tcp-address", STRINGS, (), "")
    flags.add("lookupd-http-address", STRINGS, (), "")
    flags.alternatives.append(frozenset(("nsqd-tcp-address", "lookupd-http-address")))
    flags.add("topic", STRING, "", "")
    flags.add("max-in-flight", INT, 200, "")
    flags.add("wait", DURATION, 1.0, "")
    flags.add("fast", BOOL, False, "")
    flags.add("consumer-opt", OPTIONS, (), "")
    flags.add("config", STRING, "", "")
    flags.add("version", BOOL, False, "")
    return flags


@pytest.fixture
def read(flags, tmp_path):
    """Read a command line, environment variables and the text of a file; return the values."""
    def run(words=(), environ=(), file=None):
        words = list(words)
        if file is not None:
            path = tmp_path / "nsq.toml"
            path.write_text(file)
            words.insert(0, f"--config={path}")
        return with_sources(flags, flags.parse(words), dict(environ))

    return run


def test_each_source_wins_over_those_behind_it(read):
    """The command line, the environment, the command's table, the top of the file, the default."""
    top, table = "max-in-flight = 1\n", "[nsq_tail]\nmax_in_flight = 2\n"
    environ = {"NSQ_MAX_IN_FLIGHT": "3"}
    found = [
        read(["--max-in-flight=4"], environ, top + table), read((), environ, top + table),
        read((), (), top + table), read((), (), top), read(),
    ]
    assert [each.values["max-in-flight"] for each in found] == [4, 3, 2, 1, 200]
    assert ["max-in-flight" in each.given for each in found] == [True] * 4 + [False]


@pytest.mark.parametrize("name, text, flag, value", [
    ("NSQD_TCP_ADDRESSES", "a:1, b:2", "nsqd-tcp-address", ["a:1", "b:2"]),
    ("NSQD_TCP_ADDRESS", "a:1", "nsqd-tcp-address", ["a:1"]),
    ("NSQ_LOOKUPD_HTTP_ADDRESSES", "a:1,b:2,", "lookupd-http-address", ["a:1", "b:2"]),
    ("NSQ_TOPIC", "orders", "topic", "orders"),
    ("NSQ_WAIT", "1m30s", "wait", 90.0),
    ("NSQ_FAST", "true", "fast", True),
    ("NSQ_FAST", "0", "fast", False),
    ("NSQ_CONSUMER_OPTS", "max_attempts,5 tls_v1", "consumer-opt", ["max_attempts,5", "tls_v1"]),
    ("NSQ_TOPIC", "", "topic", ""),
])
def test_a_variable_is_read_as_its_flag_is(read, name, text, flag, value):
    """Lists have commas, or blanks where a value has commas; an empty variable is not set."""
    found = read((), {name: text})
    assert found.values[flag] == value and (flag in found.given) == bool(text)


@pytest.mark.parametrize("line, flag, value", [
    ('nsqd_tcp_addresses = ["a:1", "b:2"]', "nsqd-tcp-address", ["a:1", "b:2"]),
    ('nsqd-tcp-address = "a:1"', "nsqd-tcp-address", ["a:1"]),
    ('wait = "1m30s"', "wait", 90.0),
    ("fast = true", "fast", True),
    ('consumer_opt = ["max_attempts,5"]', "consumer-opt", ["max_attempts,5"]),
    ("[consumer_opts]\nmax_attempts = 5\ntls_v1 = true", "consumer-opt",
     ["max_attempts,5", "tls_v1,true"]),
    ('gzip = true\n[nsq_to_file]\ntopic = "x"\n[spark.archive]\ntopic = "y"', "topic", ""),
])
def test_a_line_of_a_file_is_read_as_its_flag_is(read, line, flag, value):
    """What is for other commands is left to them."""
    assert read((), (), line).values[flag] == value


def test_the_file_may_be_named_by_a_variable(read, tmp_path):
    """NSQ_CONFIG, unless the command line names another one."""
    path = tmp_path / "other.toml"
    path.write_text('topic = "from the variable"')
    environ = {"NSQ_CONFIG": str(path)}
    assert read((), environ).values["topic"] == "from the variable"
    assert read((), environ, 'topic = "named"').values["topic"] == "named"


def test_an_address_of_one_kind_hides_that_of_the_other_kind_behind_it(read):
    """A variable for every command does not forbid the other flag."""
    environ = {"NSQ_LOOKUPD_HTTP_ADDRESSES": "l:4161"}
    found = read(["--nsqd-tcp-address=a:1"], environ, 'lookupd_http_address = "m:4161"')
    assert (found.values["nsqd-tcp-address"], found.values["lookupd-http-address"]) == (["a:1"], [])
    assert read((), environ, 'nsqd_tcp_address = "a:1"').values["nsqd-tcp-address"] == []


@pytest.mark.parametrize("environ, file, said, suggestion", [
    ({"NSQ_WAIT": "5"}, None, '$NSQ_WAIT: invalid value "5" for flag -wait', ""),
    ({"NSQD_TCP_ADDRESS": "a:1", "NSQD_TCP_ADDRESSES": "a:1"}, None, "are the same", ""),
    ({}, 'wait = 5', 'invalid value "5" for flag -wait', ""),
    ({}, 'topci = "x"', "unknown option 'topci'", "topic"),
    ({}, '[nsq_tail]\ntopci = "x"', "unknown option 'topci'", "topic"),
    ({}, '[nsq_tail]\ngzip = true', "unknown option 'gzip'", ""),
    ({}, '[nsq_tial]\ntopic = "x"', "unknown option 'nsq_tial'", "nsq_tail"),
    ({}, 'topic = ["a", "b"]', "takes one value, not a list", ""),
    ({}, '[topic]\na = 1', "option 'topic' is no table", ""),
    ({}, 'version = true', "unknown option 'version'", ""),
])
def test_a_wrong_value_or_name_is_a_usage_error(read, environ, file, said, suggestion):
    """It says which variable or file, and what was probably meant; the status is 2."""
    with pytest.raises(FlagError) as caught:
        read((), environ, file)
    assert said in str(caught.value) and caught.value.suggestion == suggestion
    assert caught.value.status == 2 and "\n" not in str(caught.value)


@pytest.mark.parametrize("name, meant", [
    ("NSQ_LOOKUPD_HTTP_ADRESSES", "NSQ_LOOKUPD_HTTP_ADDRESSES"),
    ("NSQLOOKUPD_HTTP_ADDRESSES", "NSQ_LOOKUPD_HTTP_ADDRESSES"),
    ("NSQ_LOOKUPD_ADDRESSES", "NSQ_LOOKUPD_HTTP_ADDRESSES"),
    ("NSQD_TCP_ADRESS", "NSQD_TCP_ADDRESS"),
    ("NSQ_NSQD_TCP_ADDRESSES", "NSQD_TCP_ADDRESSES"),
    ("NSQ_TOPCI", "NSQ_TOPIC"),
    ("NSQ_MAX_INFLIGHT", "NSQ_MAX_IN_FLIGHT"),
    ("NSQ_AUTH_SECRET", "NSQCLIENT_AUTH_SECRET"),
    ("NSQCLIENT_AUTH_SECERT_FILE", "NSQCLIENT_AUTH_SECRET_FILE"),
])
def test_a_misspelt_variable_is_noticed(flags, name, meant):
    """With the name that was probably meant."""
    assert misspelt_variables(flags, {name: "x"}) == {name: meant}


@pytest.mark.parametrize("name", [
    "NSQ_TOPIC", "NSQD_TCP_ADDRESSES", "NSQCLIENT_AUTH_SECRET", "NSQCLIENT_TLS_KEY_PASSWORD_FILE",
    # read by other commands
    "NSQD_HTTP_ADDRESSES", "NSQ_TOPICS", "NSQ_AUTH_SECRET_FILE", "NSQ_GZIP",
    # of other programs, and those that Kubernetes sets for services called nsqd, nsq, nsqlookupd
    "NSQ_BIN", "NSQ_TOPIC_ORDERS", "NSQD_PORT", "NSQD_PORT_4150_TCP", "NSQD_PORT_4150_TCP_ADDR",
    "NSQD_SERVICE_HOST", "NSQD_SERVICE_PORT_TCP", "NSQ_SERVICE_HOST", "NSQ_PORT", "NSQ_HOST",
    "NSQLOOKUPD_PORT_4161_TCP_ADDR", "NSQLOOKUPD_SERVICE_PORT_HTTP", "NSQADMIN_PORT", "NSQ_VERSION",
    "PATH", "TOPCI",
])
def test_the_variables_of_other_programs_are_left_alone(flags, name):
    """Only what is nearly a name of ours is a mistake."""
    assert misspelt_variables(flags, {name: "x"}) == {}


def test_a_command_warns_of_a_misspelt_variable(monkeypatch, capsys):
    """And goes on with what it has."""
    monkeypatch.setenv("NSQ_LOOKUPD_HTTP_ADRESSES", "127.0.0.1:4161")
    assert main(["nsq_tail", "--topic=t"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        "nsq_tail: warning: $NSQ_LOOKUPD_HTTP_ADRESSES is not read: did you mean"
        " $NSQ_LOOKUPD_HTTP_ADDRESSES?")


@pytest.mark.parametrize("text", ["topic = [", b"\xff".decode("latin-1") + "= 1"])
def test_a_file_that_is_no_toml_is_an_error(read, text):
    """With the reason; so is a file that is not there."""
    with pytest.raises(CommandLineError, match="failed to load config file"):
        read((), (), text)
    with pytest.raises(CommandLineError, match="No such file"):
        read(["--config=/no/such/file"])


def test_every_command_has_variables_and_a_file():
    """Without a line of its own; no two flags of a command share a variable."""
    for name, flags in all_flag_sets().items():
        names = [variable for flag in flags.flags for variable in variables(flag)]
        assert len(names) == len(set(names)), name
        if name != "completion":
            assert "config" in {flag.name for flag in flags.flags}, name
    assert {name.split()[0] for name in all_flag_sets()} == set(COMMANDS)


def test_a_command_reads_its_environment(tmp_path):
    """In a process of its own: the topic from a variable, a mistake in two lines."""
    config = tmp_path / "nsq.toml"
    config.write_text('[nsq_tail]\nmax_in_flight = -1\nnsqd_tcp_address = "127.0.0.1:1"\n')
    environ = {**user_environment(), "NSQ_TOPICS": "orders", "NSQ_CONFIG": str(config)}
    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-m", "nsqclient", "nsq_tail"], env=environ,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "nsq_tail: --max-in-flight must not be negative\n"
    environ["NSQ_TOPICS"] = ""
    done = subprocess.run([sys.executable, "-m", "nsqclient", "nsq_tail"], env=environ,
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)


def test_a_version_is_printed_whatever_the_environment_says(monkeypatch, capsys):
    """A wrong variable does not hide it."""
    monkeypatch.setenv("NSQ_MAX_IN_FLIGHT", "many")
    assert main(["nsq_tail", "--version"]) == 0
    assert main(["nsq_tail", "--topic=t"]) == 2
    assert "$NSQ_MAX_IN_FLIGHT" in capsys.readouterr().err
