"""Commands by value: Go's habits, sources of values, mistakes and their error texts."""

import os
import subprocess
import sys

import pytest

from nsqclient.cli import build_program
from nsqclient.cli.command import Command
from nsqclient.cli.flags import (
    BOOL, DURATION, INT, PATH, STRING, STRINGS, CommandLineError, FlagError,
)
from nsqclient.cli.tool_flags import COUNT, OPTIONS, POSITIVE, ToolFlags, add_http_timeouts
from tests.support.processes import CHECKOUT, LIMIT


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith("NSQ"):
            monkeypatch.delenv(name)


def build(body=lambda parsed: 7, **options) -> Command:
    flags = ToolFlags("nsq_tail", body, "Does nothing.", [("nothing", "nsqclient nsq_tail")],
                      **options)
    flags.group("What")
    flags.add("nsqd-tcp-address", STRINGS, (), "where nsqds are")
    flags.add("lookupd-http-address", STRINGS, (), "where nsqlookupds are")
    flags.alternatives.append(("nsqd-tcp-address", "lookupd-http-address"))
    flags.add("topic", STRING, "x", "the topic")
    flags.add("n", INT, 0, "how many")
    flags.add("max-in-flight", INT, 200, "how many at once, 100 % of them")
    flags.add("wait", DURATION, 1.0, "how long")
    flags.add("fast", BOOL, False, "a switch")
    flags.add("consumer-opt", OPTIONS, (), "options")
    flags.add("file", PATH, "", "a file")
    flags.add_common()
    return flags


@pytest.fixture
def read(monkeypatch, tmp_path):
    def run(words=(), environ=(), file=None):
        words = list(words)
        if file is not None:
            path = tmp_path / "nsq.toml"
            path.write_text(file)
            words.insert(0, f"--config={path}")
        for name, value in dict(environ).items():
            monkeypatch.setenv(name, value)
        try:
            return build().parse(words, build_program())
        finally:
            for name in dict(environ):
                monkeypatch.delenv(name)

    return run


@pytest.mark.parametrize("words, flag, value", [
    (["-topic", "v"], "topic", "v"), (["--topic", "v"], "topic", "v"),
    (["-topic=v"], "topic", "v"), (["--topic=v"], "topic", "v"), (["--topic="], "topic", ""),
    (["--topic", "--fast"], "topic", "--fast"),
    (["--topic=--"], "topic", "--"), (["--topic==x"], "topic", "=x"),
    (["--topic=a=b\nc"], "topic", "a=b\nc"),
    (["-n", "-1"], "n", -1), (["--n=5"], "n", 5), ([], "n", 0),
    (["-wait=1h30m"], "wait", 5400.0), (["-wait=0"], "wait", 0.0),
    (["-fast"], "fast", True), (["-fast=false"], "fast", False), (["--fast=F"], "fast", False),
    (["-nsqd-tcp-address=a", "-nsqd-tcp-address", "b"], "nsqd-tcp-address", ["a", "b"]),
])
def test_a_command_line_has_the_habits_of_go(read, words, flag, value):
    found = read(words)
    assert found.values[flag] == value and (flag in found.given) == bool(words)


@pytest.mark.parametrize("words, rest", [
    (["-fast", "true", "-n=1"], ["true", "-n=1"]), (["--", "-n=1"], ["-n=1"]),
    (["-", "-n=1"], ["-", "-n=1"]),
])
def test_flags_end_at_the_first_other_word(words, rest):
    found = build(words="WORD").parse(words)
    assert found.rest == rest and found.values["n"] == 0
    found = build(words="WORD", flags_anywhere=True).parse(["a", "-n=1", "b"])
    assert found.rest == ["a", "b"] and found.values["n"] == 1


@pytest.mark.parametrize("words, said", [
    (["-bogus"], "unknown flag --bogus"),
    (["-topci=secret"], "unknown flag --topci: did you mean --topic?"),
    (["-topic"], "--topic needs a value"),
    (["-n=x"], "--n: 'x' is not a whole number"),
    (["-n=9223372036854775808"], "out of range"),
    (["-wait=5"], "--wait: "),
    (["-fast=maybe"], "--fast: 'maybe' is not true or false"),
    (["---topic=x"], "unknown flag ---topic"),
    (["--max-in=3"], "unknown flag --max-in"),
    (["word=secret"], "unexpected argument 'word=...'"),
    (["--log-level=loud"], "--log-level: invalid choice: 'loud' (choose from "),
])
def test_a_wrong_command_line_is_two_lines_and_status_2(words, said, capsys):
    assert build().run(words) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("nsqclient nsq_tail: ") and said in first and "secret" not in first
    assert second == "see 'nsqclient nsq_tail --help'"


@pytest.mark.parametrize("error", [CommandLineError("no disk"), OSError("no disk")])
def test_what_cannot_be_done_is_one_line_and_status_1(error, capsys):
    def body(parsed):
        raise error

    assert build(body).run([]) == 1
    assert capsys.readouterr().err == "nsq_tail: no disk\n"


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_shows_groups_defaults_and_examples(word, capsys):
    assert build().run([word, "--bogus"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("usage: nsqclient nsq_tail [flags]\n\nDoes nothing.\n\n")
    assert "\nWhat:\n  --nsqd-tcp-address value\n" in out and "100 % of them" in out
    assert "(default 200)" in out and "(default 1s)" in out
    assert out.endswith("Examples:\n  # nothing\n  nsqclient nsq_tail\n")


RULES = ["--topic=t", "--channel=c", "--lookupd-http-address=l:1"]


@pytest.mark.parametrize("words, status, said", [
    ([], 2, "--topic required"),
    (["--topic="], 2, "--topic required"),
    (["--topic=t", "--channel="], 2, "--channel required"),
    (RULES[:2], 2, "--nsqd-tcp-address or --lookupd-http-address required"),
    ([*RULES, "--nsqd-tcp-address=n:1"], 2,
     "use --nsqd-tcp-address or --lookupd-http-address not both"),
    (["--topic=a b"], 2, "--topic is invalid: 'a b'"),
    ([*RULES, "--a=1", "--b=1"], 2, "use --a or --b not both"),
    ([*RULES, "--c=1"], 2, "--c needs --a or --b"),
    (["--max-in-flight=-1"], 2, "--max-in-flight must not be negative"),
    (["--http-client-connect-timeout=0"], 2, "--http-client-connect-timeout should be positive"),
    ([*RULES, "--b=-1", "--c=0"], 0, ""),
])
def test_flags_that_go_together_or_not_are_checked_first(words, status, said, capsys):
    flags = ToolFlags("nsq_tail", lambda parsed: parsed.values["b"], "Does nothing.")
    flags.add_topic(channel="c")
    flags.add_in_flight()
    for name in "abc":
        flags.add(name, COUNT, 0, "a number")
    flags.exclude("a", "b")
    flags.need("c", "a", "b")
    flags.add_sources()
    add_http_timeouts(flags, POSITIVE)
    flags.add_common()
    assert flags.run(words) == status
    assert said in capsys.readouterr().err


def test_each_place_wins_over_those_behind_it(read):
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
    ("NSQ_TOPIC", "orders", "topic", "orders"), ("NSQ_TAIL_N", "3", "n", 3), ("NSQ_N", "", "n", 0),
    ("NSQ_WAIT", "1m30s", "wait", 90.0),
    ("NSQ_FAST", "0", "fast", False),
    ("NSQ_CONSUMER_OPTS", "max_attempts,5 tls_v1", "consumer-opt",
     [("max_attempts", "5"), ("tls_v1", "true")]),
    ("NSQ_TOPIC", "", "topic", "x"),
])
def test_a_variable_is_read_as_its_flag_is(read, name, text, flag, value):
    found = read((), {name: text})
    assert found.values[flag] == value and (flag in found.given) == bool(text)


@pytest.mark.parametrize("line, flag, value", [
    ('nsqd_tcp_addresses = ["a:1", "b:2"]', "nsqd-tcp-address", ["a:1", "b:2"]),
    ('nsqd-tcp-address = "a:1"', "nsqd-tcp-address", ["a:1"]),
    ('wait = "1m30s"', "wait", 90.0),
    ("fast = true", "fast", True),
    ("[consumer_opts]\nmax_attempts = 5\ntls_v1 = true", "consumer-opt",
     [("max_attempts", "5"), ("tls_v1", "true")]),
    ('[topic.create]\nyes = true', "topic", "x"),
    ('gzip = true\n[nsq_to_file]\ntopic = "z"\n[spark.archive]\ntopic = "y"', "topic", "x"),
])
def test_a_line_of_a_file_is_read_as_its_flag_is(read, line, flag, value):
    assert read((), (), line).values[flag] == value


def test_an_address_of_one_kind_hides_that_of_the_other_kind_behind_it(read):
    environ = {"NSQ_LOOKUPD_HTTP_ADDRESSES": "l:4161"}
    found = read(["--nsqd-tcp-address=a:1"], environ, 'lookupd_http_address = "m:4161"')
    assert (found.values["nsqd-tcp-address"], found.values["lookupd-http-address"]) == (["a:1"], [])
    assert read((), environ, 'nsqd_tcp_address = "a:1"').values["nsqd-tcp-address"] == []


@pytest.mark.parametrize("environ, file, said", [
    ({"NSQ_WAIT": "5"}, None, "$NSQ_WAIT: --wait: "),
    ({"NSQD_TCP_ADDRESS": "a:1", "NSQD_TCP_ADDRESSES": "a:1"}, None, "are the same"),
    ({}, 'wait = 5', "nsq.toml: --wait: "),
    ({}, 'topci = "x"', "unknown option 'topci': did you mean topic?"),
    ({}, '[nsq_tail]\ntopci = "x"', "unknown option 'topci': did you mean topic?"),
    ({}, '[nsq_tail]\ngzip = true', "unknown option 'gzip'"),
    ({}, '[nsq_tial]\ntopic = "x"', "unknown option 'nsq_tial': did you mean nsq_tail?"),
    ({}, 'topic = ["a", "b"]', "takes one value, not a list"),
    ({}, '[topic]\na = 1', "option 'topic' is not a table"),
    ({}, 'version = true', "unknown option 'version'"),
    ({}, 'n = 5', "unknown option 'n'"),
])
def test_a_wrong_value_or_name_is_a_usage_error(read, environ, file, said):
    with pytest.raises(FlagError) as caught:
        read((), environ, file)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_closed_streams_are_devnull():
    code = ("import os, sys; from nsqclient.cli import _open_closed_streams as f; f();"
            " print('x', file=sys.stderr, flush=True);"
            " os._exit(any(not os.path.samestat(os.fstat(n), os.stat(os.devnull))"
            " for n in range(3)))")
    done = subprocess.run(["/bin/sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, code],
                          env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, timeout=LIMIT,
                          check=False)
    assert done.returncode == 0
