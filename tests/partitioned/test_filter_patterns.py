"""Which patterns of header filters Go can certainly compile; compared with Go itself by hand."""

from __future__ import annotations

import pytest

from nsqclient.partitioned.filter_patterns import PatternError, check_glob, check_regexp


@pytest.mark.parametrize("pattern", [
    "", "a", "a|b", "|", "^+a", "$*", r"\Qa.b\E+", r"(?i)a", r"(?i:a)", r"(?s-m:a)", r"(?P<n>a)",
    r"(?:a)*?", r"a{2}", r"a{2,}", r"a{0,1000}?", r"(a{10}){100}", "a{", "{,5}", "}", "]",
    "[^a]", "[a-z0-9_]", "[-a]", "[a-]", r"[\d\]]", "[[:alpha:]x]",
    "[[:^digit:]]", r"[\x41-\x{5A}]", r"\pL\p{Greek}\P{^Lu}", r"\a\f\t\n\r\v", r"\_\-\\",
    r"\b\B\A\z", "\u00e9\n",
])
def test_regular_expressions_of_go_are_accepted(pattern):
    """Those of RE2, also where Python has others."""
    check_regexp(pattern)


@pytest.mark.parametrize(("pattern", "why"), [
    ("*", "nothing"), ("(|+)", "nothing"), ("(?i)*", "nothing"), ("a**", "repetition of a"),
    ("a++", "repetition of a"), ("a{2}{3}", "repetition of a"), ("a{1001}", "from 0 to 1000"),
    ("a{3,2}", "from 0 to 1000"), ("(a{100}){11}", "nested repetitions"), ("(", "without a )"),
    (")", "without a ("), ("(?=a)", "lookaround"), ("(?<n>a)", "lookaround"), ("(?#a)", "no look"),
    ("(?P<n>a)(?P<n>b)", "two groups"), ("[", "without a ]"), ("[]", "nothing in it"),
    ("[^", "without"), ("[^]", "nothing"), ("[b-a]", "range"), (r"[a-\d]", "range"),
    ("[a-b-c]", "first or last"), ("[[:foo:]]", "class"), (r"[^\z]", r"\\z"), (r"\Z", r"\\Z"),
    (r"(a)\1", r"\\1"), ("a\\", "does not have"), (r"\x{110000}", "no character"),
    (r"\p{Klingon}", "class of char"), (r"\Qa", "without an"), (r"\Q\E", "nothing between"),
    ("(" * 200, "inside of each other"), ("[a-", "range"), (r"[a", "without"),
])
def test_other_regular_expressions_are_refused(pattern, why):
    """nsqd would deliver everything."""
    with pytest.raises(PatternError) as caught:
        check_regexp(pattern)
    assert why.replace("\\\\", "\\") in str(caught.value)


@pytest.mark.parametrize("pattern", [
    "", "eu-*", "a?c", "[abc]", "[!abc]", "[a-z]", "[!0-9]", "{eu,us}-*", "{[ab]c,d?}", r"\*\[",
    "a,b", "a-b!", "**",
])
def test_globs_are_accepted(pattern):
    """Wildcards, sets, ranges, alternatives."""
    check_glob(pattern)


@pytest.mark.parametrize("pattern", [
    "[a", "eu-[", "[!]", "[]", "eu-[9-1]", "[a-]", "[a-z0-9]", "]", "{a", "a}", "{a,{b,c}}",
    "{a,}", "{}", "a\\",
])
def test_other_globs_are_refused(pattern):
    """nsqd would deliver everything, or what it does is not certain."""
    with pytest.raises(PatternError):
        check_glob(pattern)
