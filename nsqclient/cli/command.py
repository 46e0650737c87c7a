"""``Command``: flags on top of argparse, and a function to run. ``CommandGroup``: several commands.

Command lines follow Go's programs: ``-x v``, ``--x v``, ``-x=v`` and ``--x=v`` are the same. A
switch is ``-x`` or ``-x=false`` and never takes the next word. Flags end at the first positional
argument, or after ``--``.

A value comes from the first source that gives it: command line, environment, configuration file
(the command's table, then the top level), default. If flags are alternatives, the first source
that gives any of them decides.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from nsqclient.cli.flags import (
    CommandLineError, Flag, FlagError, Kind, Parsed, Texts, check_required,
    in_environment, in_table, keys, load_toml,
)
from nsqclient.errors import ConfigError, NSQError
from nsqclient.runtime.arguments import closest
from nsqclient.version import __version__

_INTERRUPTED = 128 + signal.SIGINT
#: Flags whose meaning differs between commands.
_OWN_FLAGS = ("count", "format", "interval", "n", "path")
#: Put before each value, because argparse up to Python 3.12 drops the value "--".
_MARK = "="


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FlagError(message.removeprefix("argument "))


class HelpRequested(Exception):
    pass


class Command:
    """A command with flags, which are shown in groups.

    Args:
        body: runs the command; returns the exit status.
        examples: pairs of (comment, command line).
        words: placeholder of the positional arguments; empty: positional arguments are rejected.
        flags_anywhere: flags may follow positional arguments.
    """

    #: flag -> its key in NSQ's own configuration files, if that differs.
    config_names: Mapping[str, str] = {}
    #: flag of another program -> hint for a user who types it.
    unknown: Mapping[str, str] = {}

    def __init__(
        self, name: str, body: Callable[[Parsed], int], summary: str,
        examples: Iterable[tuple[str, str]] = (), *, words: str = "",
        flags_anywhere: bool = False, version: str = "",
    ) -> None:
        self.name = name
        self._body = body
        self._words = words
        self._flags_anywhere = flags_anywhere
        self._version = version or f"{name} v{__version__} (nsqclient)"
        lines = [f"\n  # {comment}\n  {command}" for comment, command in examples]
        self.parser: _Parser = _Parser(
            f"nsqclient {name}", f"nsqclient {name} [flags] {words}".rstrip(), summary,
            "Examples:" + "".join(lines) if lines else None, add_help=False, allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        self._group = self.parser.add_argument_group("Flags")
        self.flags: dict[str, Flag] = {}
        #: Alternatives: the first source that gives one of them hides the others.
        self.alternatives: list[Sequence[str]] = []
        #: Checks that raise FlagError for missing or conflicting flags.
        self.rules: list[Callable[[Mapping[str, Any]], None]] = []
        self.paths: list[argparse.Action] = []

    def group(self, title: str) -> None:
        self._group = self.parser.add_argument_group(title)

    def add(self, name: str, kind: Kind, default: Any, help_text: str) -> None:
        """Add a flag to the current group. A list flag may be repeated."""
        def read(text: str) -> Any:
            try:
                return kind.parse(text.removeprefix(_MARK))
            except ValueError as exc:
                raise argparse.ArgumentTypeError(str(exc)) from exc
            except CommandLineError as exc:
                raise FlagError(f"--{name} {exc}") from exc

        # A default that is false, empty or 0 is not shown.
        text = f"{help_text} (default {kind.show(default)})" if default else help_text
        action = self._group.add_argument(
            f"--{name}", dest=name, type=read, action="append" if kind.is_list else "store",
            nargs="?" if kind.is_switch else None, choices=kind.choices or None,
            metavar=kind.name, help=text.replace("%", "%%"))
        self.flags[name] = Flag(
            name, kind, default, help_text, self.name if name in _OWN_FLAGS else "")
        if kind.is_path:
            self.paths.append(action)

    def require(self, *names: str) -> None:
        self.alternatives.append(names)
        self.rules.append(lambda values: check_required(values, *names))

    def exclude(self, *names: str) -> None:
        self.rules.append(lambda values: check_required(values, *names, count=0))

    def need(self, name: str, *others: str) -> None:
        def check(values: Mapping[str, Any]) -> None:
            if values[name] and not any(values[other] for other in others):
                raise FlagError(
                    f"--{name} needs {' or '.join(f'--{other}' for other in others)}")

        self.rules.append(check)

    def commands(self) -> Iterator[Command]:
        yield self

    def run(self, words: Sequence[str], program: CommandGroup | None = None) -> int:
        """Run a command line; return the exit status.

        ``program``: all commands; a configuration file may have keys for any of them.
        """
        path = f"nsqclient {self.name}"
        try:
            parsed = self.parse(words, program)
            if parsed.values.get("version"):
                print(self._version)
                return 0
            for check in self.rules:
                check(parsed.values)
            return self._body(parsed)
        except HelpRequested:
            self.parser.print_help()
            return 0
        except FlagError as exc:
            sys.stderr.write(f"{path}: {exc}\nsee '{path} --help'\n")
            return exc.status
        except BrokenPipeError:
            raise  # the reader of stdout has ended
        except (CommandLineError, NSQError, OSError) as exc:
            sys.stderr.write(f"{self.name}: {exc}\n")
            if isinstance(exc, ConfigError):  # the library rejected a value
                return FlagError.status
            return getattr(exc, "status", CommandLineError.status)
        except KeyboardInterrupt:
            return _INTERRUPTED

    def parse(self, words: Sequence[str], program: CommandGroup | None = None) -> Parsed:
        """Return the values of all flags, from all sources."""
        canonical, rest = self._canonical(words)
        given: dict[str, Any] = vars(self.parser.parse_args(canonical))
        if not given.get("version"):
            if rest and not self._words:
                # Do not show the text after the "=", which may be a secret.
                name, equals, _ = rest[0].partition("=")
                hint = f"write --topic={name}" if {"topic"} == self.flags.keys() & {"topic", name} \
                    and not equals else "flags begin with --"
                raise FlagError(
                    f"unexpected argument {name + '=...' if equals else name!r}: {hint}")
            self._fill(given, in_environment(self.flags.values(), os.environ))
            if given.get("config"):
                self._fill(given, self._in_file(given["config"], program or self))
        defaults = {flag.name: list(flag.default) if flag.kind.is_list else flag.default
                    for flag in self.flags.values()}
        return Parsed(defaults | given, frozenset(given), rest)

    def _canonical(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the flags as ``--name=value`` for argparse, and the positional arguments."""
        found: list[str] = []
        rest: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                return found, rest + left
            if word == "-" or not word.startswith("-"):
                rest.append(word)
                if self._flags_anywhere:
                    continue
                return found, rest + left
            name, equals, text = word[2 if word.startswith("--") else 1:].partition("=")
            flag = self.flags.get(name)
            if flag is None and name in ("h", "help"):
                raise HelpRequested
            if flag is None:
                # Only the first word: with misplaced quotes, the others may be a secret.
                name = name.partition(" ")[0]
                if name in self.unknown:
                    raise FlagError(self.unknown[name])
                close = closest(name.replace("_", "-").lower(), self.flags)
                raise FlagError(f"unknown flag --{name}", f"--{close}" if close else "")
            if not equals:
                if not flag.kind.is_switch and not left:
                    raise FlagError(f"--{name} needs a value")
                text = "true" if flag.kind.is_switch else left.pop(0)
            found.append(f"--{name}={_MARK}{text}")
        return found, rest

    def _fill(self, given: dict[str, Any], texts: Texts) -> None:
        hidden = {name for names in self.alternatives if given.keys() & set(names)
                  for name in names}
        for name, (place, values) in texts.items():
            if name not in hidden | given.keys():
                try:
                    given |= vars(self.parser.parse_args(
                        [f"--{name}={_MARK}{text}" for text in values]))
                except FlagError as exc:
                    raise FlagError(f"{place}: {exc}") from None

    def _in_file(self, path: str, program: Command | CommandGroup) -> Texts:
        table = content = load_toml(path)
        for word in self.name.split():
            table = table[word] if isinstance(table.get(word), dict) else {}
        by_key = self.keys()

        def others() -> list[str]:
            return [key for command in program.commands()
                    for key in (*shared(command.keys()), command.name.partition(" ")[0])]

        def shared(flags: Mapping[str, Flag]) -> dict[str, Flag]:
            return {key: flag for key, flag in flags.items() if not flag.command}

        return (in_table(content, shared(by_key), path, others)
                | in_table(table, by_key, path, list))

    def keys(self) -> dict[str, Flag]:
        return keys(self.flags.values(), self.config_names)


class CommandGroup:
    """Several commands under one name. ``table``: name -> (summary, loader); ``others``: aliases.
    """

    def __init__(
        self, name: str, summary: str,
        table: Mapping[str, tuple[str, Callable[[], Command | CommandGroup]]],
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.table = table
        self._summary = summary
        self.others: Mapping[str, str] = others or {}

    def commands(self) -> Iterator[Command]:
        for _, load in self.table.values():
            yield from load().commands()

    def run(self, words: Sequence[str], program: CommandGroup | None = None) -> int:
        words = list(words)
        if words[:1] == ["help"] and len(words) > 1:
            words = [*words[1:], "--help"]
        word = words[0] if words else ""
        found = self.table.get(self.others.get(word, word))
        if found is not None:
            return found[1]().run(words[1:], program or self)
        if word in ("-h", "-help", "--help", "help"):
            sys.stdout.write(self._help())
            return 0
        if not word:
            sys.stderr.write(self._help())
            return FlagError.status
        error = FlagError(f"unknown command {word!r}", closest(word, [*self.table, *self.others]))
        sys.stderr.write(f"{self.name}: {error}\nsee '{self.name} --help'\n")
        return error.status

    def _help(self) -> str:
        short = {own: f", {other}" for other, own in self.others.items()}
        shown = {name + short.get(name, ""): text for name, (text, _) in self.table.items()}
        width = max(map(len, shown))
        lines = [f"usage: {self.name} COMMAND [flags]", "", self._summary, "", "Commands:"]
        lines += [f"  {names:<{width}}  {text}" for names, text in shown.items()]
        lines += ["", f"'{self.name} COMMAND --help' shows the flags of a command."]
        return "\n".join(lines) + "\n"
