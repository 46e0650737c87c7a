"""Command lines read as Go's flag package reads them."""

from __future__ import annotations

import pytest

from nsqclient.cli import goflags
from nsqclient.cli.goflags import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRINGS,
    CommandLineError,
    FlagError,
    FlagSet,
    HelpRequested,
)


@pytest.fixture
def flags():
    """A program with one flag of each kind."""
    flags = FlagSet("tool")
    flags.add("name", STRING, "x", "a name")
    flags.add("count", INT, 3, "a number")
    flags.add("wait", DURATION, 60.0, "a time")
    flags.add("fast", BOOL, False, "a switch")
    flags.add("address", STRINGS, (), "a list")
    return flags


@pytest.mark.parametrize("words", [["-name", "v"], ["--name", "v"], ["-name=v"], ["--name=v"]])
def test_a_flag_has_four_spellings(flags, words):
    """One dash or two, with = or the next word: all the same."""
    assert flags.parse(words).values["name"] == "v"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-count=0x10"], "count", 16),
        (["-count=010"], "count", 8),
        (["-count=-5"], "count", -5),
        (["-wait=1h30m"], "wait", 5400.0),
        (["-wait=300ms"], "wait", 0.3),
        (["-wait=0"], "wait", 0.0),
        (["-fast"], "fast", True),
        (["-fast=false"], "fast", False),
        (["-address=a", "-address", "b"], "address", ["a", "b"]),
        ([], "count", 3),
        (["-name="], "name", ""),
    ],
)
def test_values_are_parsed_as_in_go(flags, words, name, value):
    """Each kind reads what Go reads."""
    assert flags.parse(words).values[name] == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-bogus"], "flag provided but not defined: -bogus"),
        (["-name"], "flag needs an argument: -name"),
        (["-count=x"], 'invalid value "x" for flag -count'),
        (["-count=9223372036854775808"], "value out of range"),
        (["-wait=5"], 'invalid value "5" for flag -wait'),
        (["-fast=maybe"], 'invalid boolean value "maybe" for -fast'),
        (["---name=x"], "bad flag syntax: ---name=x"),
        (["-=x"], "bad flag syntax: -=x"),
    ],
)
def test_mistakes_are_reported_in_the_words_of_go(flags, words, text):
    """A mistake is reported in Go's words."""
    with pytest.raises(FlagError, match=text):
        flags.parse(words)


def test_parsing_ends_at_the_first_other_word(flags):
    """A switch takes no next word; the rest is left alone, also behind --."""
    assert flags.parse(["-fast", "true", "-count=1"]).rest == ["true", "-count=1"]
    assert flags.parse(["--", "-count=1"]).rest == ["-count=1"]
    assert flags.parse(["-fast"]).given == {"fast"}


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_prints_the_usage_and_succeeds(flags, word, capsys):
    """Help goes to stdout, for a pager, with status 0."""
    with pytest.raises(HelpRequested):
        flags.parse([word])
    assert goflags.run(flags, [word], lambda parsed: 7) == 0
    out, err = capsys.readouterr()
    assert err == "" and '-name string\n    \ta name (default "x")' in out


def test_errors_have_the_exit_statuses_of_go(flags, capsys):
    """2 and two lines for a bad flag, 1 and one line for what cannot be."""
    def fail(parsed):
        raise CommandLineError("no such port")

    assert goflags.run(flags, ["-bogus"], lambda parsed: 0) == 2
    assert capsys.readouterr().err == (
        "nsqclient tool: flag provided but not defined: -bogus\nsee 'nsqclient tool --help'\n")
    assert goflags.run(flags, ["-nmae=x"], lambda parsed: 0) == 2
    assert ": did you mean --name?\n" in capsys.readouterr().err
    assert goflags.run(flags, [], fail) == 1
    assert capsys.readouterr().err == "tool: no such port\n"
