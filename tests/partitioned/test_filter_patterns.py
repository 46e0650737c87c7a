"""Which patterns of header filters Go can certainly compile; compared with Go itself by hand."""

from __future__ import annotations

import pytest

from nsqclient.partitioned.header_filter import PatternError, check_glob, check_regexp


@pytest.mark.parametrize("pattern", [
    "", "a", "a|b", "|", "^+a", "$*", r"\Qa.b\E+", r"(?i)a", r"(?i:a)", r"(?s-m:a)", r"(?P<n>a)",
    r"(?:a)*?", r"a{2}", r"a{2,}", r"a{0,1000}?", r"(a{10}){100}", "a{", "{,5}", "}", "]",
    "[^a]", "[a-z0-9_]", "[-a]", "[a-]", r"[\d\]]", "[[:alpha:]x]",
    "[[:^digit:]]", r"[\x41-\x{5A}]", r"\pL\p{Greek}\P{^Lu}", r"\a\f\t\n\r\v", r"\_\-\\",
    r"\b\B\A\z", "\u00e9\n", "[a&&b||c]", r"[\[:alpha:]", "[:alpha:]", r"\ ", "a{30}b{90}c{50}",
])
def test_regular_expressions_of_go_are_accepted(pattern):
    """Those of RE2, also where Python has others."""
    check_regexp(pattern)


@pytest.mark.parametrize("pattern", [
    "*", "(|+)", "(?i)*", "a(?i)*", "a**", "a++", "a{2}{3}", "{2}", "a{1001}", "a{3,2}",
    "(a{100}){11}", "(", ")", "(?=a)", "(?!a)", "(?<=a)", "(?<n>a)", "(?P=n)", "(?>a)", "(?#a)",
    "(?(1)a|b)", "(?P<n>a)(?P<n>b)", "[", "[]", "[^", "[^]", "[^]]", "[]a]", "[b-a]", r"[a-\d]",
    "[a-b-c]", "[a-", "[a", "[[:foo:]]", "[a-[:alpha:]]", r"[^\z]", r"\Z", r"(a)\1", "a\\",
    r"\x{110000}", r"\p{Klingon}", r"\Qa", r"\Q\E", "(" * 200 + ")" * 200,
])
def test_other_regular_expressions_are_refused(pattern):
    """nsqd would deliver everything."""
    with pytest.raises(PatternError):
        check_regexp(pattern)


@pytest.mark.parametrize("pattern", [
    "", "eu-*", "a?c", "[abc]", "[!abc]", "[a-z]", "[!0-9]", "{eu,us}-*", "{[ab]c,d?}", r"\*\[",
    "a,b", "a-b!", "**",
])
def test_globs_are_accepted(pattern):
    check_glob(pattern)


@pytest.mark.parametrize("pattern", [
    "[a", "eu-[", "[!]", "[]", "eu-[9-1]", "[a-]", "[a-z0-9]", "]", "{a", "a}", "{a,{b,c}}",
    "{a,}", "{}", "a\\",
])
def test_other_globs_are_refused(pattern):
    """nsqd would deliver everything, or what it does is not certain."""
    with pytest.raises(PatternError):
        check_glob(pattern)
