"""Which patterns of header filters nsqd can certainly compile. Pure.

nsqd ignores a filter whose pattern it cannot compile, and delivers everything. So a pattern is
accepted only if it belongs to the parts of Go's syntaxes that are described here: those of
``regexp`` (RE2) and of its globs. What is not certain is refused.
"""

from __future__ import annotations

import re

#: The largest number of a repetition in Go, also of nested ones multiplied.
_MOST_REPEATS = 1000
#: Groups inside of each other; Go allows 1000.
_MOST_DEPTH = 100
_REPEAT = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}")
_FLAGS = re.compile(r"\(\?(?:[imsU]+(?:-[imsU]+)?|-[imsU]+)([:)])")
_NAME = re.compile(r"\(\?P<([A-Za-z_]\w*)>", re.ASCII)
_HEX = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_UNICODE = re.compile(r"\\[pP](?:([CLMNPSZ])|\{\^?(\w+)\})")
_POSIX = re.compile(
    r"\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit)"
    r":\]")
_CATEGORIES = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z"
    " Zl Zp Zs Arabic Armenian Bengali Cyrillic Devanagari Georgian Greek Han Hangul Hebrew"
    " Hiragana Katakana Latin Tamil Thai".split())
_CLASSES = "dDsSwW"
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


class PatternError(ValueError):
    """It is not certain that nsqd can compile a pattern; the text says why."""


def check_regexp(pattern: str) -> None:
    """Check a regular expression.

    Raises:
        PatternError: Go may not be able to compile it.
    """
    _Regexp(pattern).check()


class _Regexp:
    """Reads one regular expression from its beginning to its end."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._names: set[str] = set()

    def check(self) -> None:
        self._alternatives(0)
        if self._at < len(self._text):
            raise PatternError("a ) without a (")

    def _next(self) -> str:
        return self._text[self._at:self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _alternatives(self, depth: int) -> int:
        """Read up to a ) or the end; return how often its repetitions repeat, multiplied."""
        most = 1
        while self._at < len(self._text) and self._next() != ")":
            if self._next() in "*+?" or _REPEAT.match(self._text, self._at):
                raise PatternError("a repetition of nothing")
            if self._next() == "|":
                self._at += 1
                continue
            repeats = self._atom(depth)
            if repeats is not None:  # else flags, after which there is nothing to repeat
                most = max(most, self._repeated(repeats))
        return most

    def _repeated(self, repeats: int) -> int:
        """Read the repetition of what came before, if there is one."""
        found = self._take(_REPEAT)
        if found is not None:
            least = int(found[1])
            highest = int(found[3]) if found[3] else least
            if highest < least or highest > _MOST_REPEATS:
                raise PatternError(f"a repetition that is not from 0 to {_MOST_REPEATS} times")
            repeats *= max(1, highest)
            if repeats > _MOST_REPEATS:
                raise PatternError(f"nested repetitions of more than {_MOST_REPEATS} times")
        elif self._next() and self._next() in "*+?":
            self._at += 1
        else:
            return repeats
        if self._next() == "?":
            self._at += 1
        if self._next() and self._next() in "*+?" or _REPEAT.match(self._text, self._at):
            raise PatternError("a repetition of a repetition, which Go does not have")
        return repeats

    def _atom(self, depth: int) -> int | None:
        char = self._next()
        if char == "(":
            return self._group(depth)
        if char == "[":
            self._set()
        elif char == "\\":
            self._escape()
        else:
            self._at += 1
        return 1

    def _group(self, depth: int) -> int | None:
        if depth >= _MOST_DEPTH:
            raise PatternError(f"more than {_MOST_DEPTH} groups inside of each other")
        flags = self._take(_FLAGS)
        if flags is not None and flags[1] == ")":
            return None
        if flags is None:
            name = self._take(_NAME)
            if name is not None:
                if name[1] in self._names:
                    raise PatternError(f"two groups with the name {name[1]}")
                self._names.add(name[1])
            elif self._text.startswith("(?:", self._at):
                self._at += 3
            elif self._text.startswith("(?", self._at):
                raise PatternError(
                    f"{self._text[self._at:self._at + 4]}, which Go does not have: it has no"
                    " lookaround and no conditions, and names groups with (?P<name>")
            else:
                self._at += 1
        repeats = self._alternatives(depth + 1)
        if self._next() != ")":
            raise PatternError("a ( without a )")
        self._at += 1
        return repeats

    def _escape(self) -> None:
        """Read an escape outside of a set."""
        if self._text.startswith("\\Q", self._at):
            end = self._text.find("\\E", self._at + 2)
            if end < 0:
                raise PatternError("a \\Q without an \\E")
            if end == self._at + 2:
                raise PatternError("nothing between \\Q and \\E")
            self._at = end + 2
        elif self._text[self._at + 1:self._at + 2] in tuple("AbBz"):
            self._at += 2
        else:
            self._escaped()

    def _escaped(self) -> int | None:
        """Read an escape that may be in a set too; return its character, None of a class."""
        found = self._take(_HEX)
        if found is not None:
            value = int(found[1] or found[2], 16)
            if value > 0x10FFFF:
                raise PatternError(f"{found[0]}, which is no character")
            return value
        found = self._take(_UNICODE)
        if found is not None:
            if found[2] and found[2] not in _CATEGORIES:
                raise PatternError(f"{found[0]}, which may be no class of characters in Go")
            return None
        char = self._text[self._at + 1:self._at + 2]
        self._at += 2
        if char and char in _CLASSES:
            return None
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char or not char.isascii() or char.isalnum():
            raise PatternError(f"\\{char}, which Go does not have")
        return ord(char)

    def _set(self) -> None:
        """Read a set of characters in brackets."""
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        begin = self._at
        while self._next() != "]" or self._at == begin:
            if not self._next() or self._at == begin and self._next() == "]":
                raise PatternError("a [ without a ], or with nothing in it")
            if self._text.startswith("[:", self._at):
                if self._take(_POSIX) is None:
                    raise PatternError("a class [:...:] that Go does not have")
                continue
            is_minus = self._next() == "-"
            if is_minus and self._at != begin and self._text[self._at + 1:self._at + 2] != "]":
                raise PatternError("a - in a set that is not its first or last character")
            low = self._set_character()
            if not is_minus and self._next() == "-" and (
                    self._text[self._at + 1:self._at + 2] != "]"):
                self._at += 1
                high = self._set_character() if self._next() not in ("", "[") else None
                if low is None or high is None or high < low:
                    raise PatternError("a range in a set that is none")
        self._at += 1

    def _set_character(self) -> int | None:
        if self._next() == "\\":
            return self._escaped()
        self._at += 1
        return ord(self._text[self._at - 1])


#: Of a glob: an escaped character; a set; what stands for itself, or for any text.
_GLOB_SET = re.compile(r"\[!?(?:([^\[\]{}!\\,*?-])-([^\[\]{}!\\,*?-])|[^\[\]{}!\\,*?-]+)\]")
_GLOB_PART = re.compile(r"\\.|[^\[\]{}\\]", re.DOTALL)


def check_glob(pattern: str) -> None:
    """Check a glob: ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[!a-z]``, ``{a,b}``, ``\\*``.

    Raises:
        PatternError: nsqd may not be able to compile it.
    """
    at, begin = 0, -1  # of the alternatives in braces
    while at < len(pattern):
        found = _GLOB_SET.match(pattern, at)
        if found is not None:
            if found[1] and found[1] >= found[2]:
                raise PatternError(f"{found[0]}, a range that is none")
            at = found.end()
        elif pattern[at] == "{" and begin < 0:
            at = begin = at + 1
        elif pattern[at] == "}" and begin >= 0:
            if not all(pattern[begin:at].split(",")):
                raise PatternError("an alternative in braces that is empty")
            at, begin = at + 1, -1
        else:
            part = _GLOB_PART.match(pattern, at)
            if part is None:
                raise PatternError(f"{pattern[at:at + 8]}: brackets are [abc] or one range [a-z],"
                                   " braces {a,b} are not nested, and \\ is before a character")
            at = part.end()
    if begin >= 0:
        raise PatternError("a { without a }")
