"""HeaderFilter: its JSON in IDENTIFY, and filters that nsqd would accept but not apply.

The patterns were compared with Go itself by hand.
"""

import pytest

from nsqclient import ConfigError
from nsqclient.partitioned import HeaderFilter
from nsqclient.devserver.partitioned.queue import read_ext_filter
from nsqclient.protocol.partitioned.selection import check_glob, check_regexp


@pytest.mark.parametrize(("given", "field"), [
    (HeaderFilter.equal("k", "v"),
     {"type": 1, "inverse": False, "filter_ext_key": "k", "filter_data": "v"}),
    (HeaderFilter.regexp("k", "^a", inverse=True),
     {"type": 2, "inverse": True, "filter_ext_key": "k", "filter_data": "^a"}),
    (HeaderFilter.glob("k", "v*"),
     {"type": 3, "inverse": False, "filter_ext_key": "k", "filter_data": "v*"}),
    (HeaderFilter.any_of([("k", "v"), ("k", "w")]),
     {"type": 4, "inverse": False, "filter_ext_key": "any", "filter_data_list": [
         {"filter_ext_key": "k", "filter_data": "v"}, {"filter_ext_key": "k", "filter_data": "w"},
     ]}),
    (HeaderFilter.all_of({"k": "v"}),
     {"type": 4, "inverse": False, "filter_ext_key": "all", "filter_data_list": [
         {"filter_ext_key": "k", "filter_data": "v"}]}),
])
def test_each_filter_has_its_form_in_identify(given, field):
    assert given.identify_field() == field


@pytest.mark.parametrize(("make", "hint"), [
    (lambda: HeaderFilter.equal("", "v"), "letters, digits"),
    (lambda: HeaderFilter.equal("a.b", "v"), "as a path"),
    (lambda: HeaderFilter.equal(1, "v"), "letters, digits"),
    (lambda: HeaderFilter.equal("k", ""), "not empty"),
    (lambda: HeaderFilter.equal("k", 5), "not 5"),
    (lambda: HeaderFilter.glob("k", "a\ud800"), "cannot be sent as UTF-8: surrogates not allowed"),
    (lambda: HeaderFilter.regexp("k", "(?=x)"), "no regular expression that nsqd surely supports"),
    (lambda: HeaderFilter.glob("k", "eu-["), "no glob that nsqd surely supports"),
    (lambda: HeaderFilter.any_of({}), "at least one key"),
    (lambda: HeaderFilter.all_of("ab"), "pairs of key and value"),
    (lambda: HeaderFilter.all_of(5), "pairs of key and value"),
    (lambda: HeaderFilter.equal("k", "v", inverse="no"), "True or False"),
])
def test_what_nsqd_would_not_apply_is_refused(make, hint):
    """nsqd accepts an invalid filter without applying it."""
    with pytest.raises(ConfigError, match=hint):
        make()


@pytest.mark.parametrize(("given", "matched"), [
    (HeaderFilter.equal("k", "v"), [{"k": "v"}]),
    (HeaderFilter.equal("k", "v", inverse=True), [{"k": "vw"}, {"k": 5}, {"l": "v"}, {}, None]),
    (HeaderFilter.regexp("k", "^v"), [{"k": "v"}, {"k": "vw"}]),
    (HeaderFilter.glob("k", "v?"), [{"k": "vw"}]),
    (HeaderFilter.glob("k", "{x,v}*"), [{"k": "v"}, {"k": "vw"}]),
    (HeaderFilter.glob("k", "*"), [{"k": "v"}, {"k": "vw"}, {"k": 5}, {"l": "v"}, {}]),
    (HeaderFilter.regexp("k", "^$"), [{"k": 5}, {"l": "v"}, {}]),
    (HeaderFilter.any_of({"k": "v", "l": "v"}), [{"k": "v"}, {"l": "v"}]),
    (HeaderFilter.all_of({"k": "v", "l": "v"}), []),
])
def test_the_embedded_nsqd_applies_each_filter(given, matched):
    headers = [{"k": "v"}, {"k": "vw"}, {"k": 5}, {"l": "v"}, {}, None]
    matches = read_ext_filter(given.identify_field())
    assert [each for each in headers if matches(each)] == matched


@pytest.mark.parametrize("field", [
    None, {"type": 1}, {"type": 1, "filter_ext_key": "k"},
    {"type": 2, "filter_ext_key": "k", "filter_data": "("}, {"type": 4, "filter_ext_key": "any"},
    {"type": 4, "filter_ext_key": "any", "filter_data_list": [5]},
    {"type": 4, "filter_ext_key": "any", "filter_data_list": [{"filter_ext_key": "k"}]},
    {"type": True, "filter_ext_key": "k", "filter_data": "v"},
    {"type": 9, "filter_ext_key": "k", "filter_data": "v"},
])
def test_the_embedded_nsqd_ignores_an_invalid_filter(field):
    """As a real nsqd, it then delivers every message."""
    assert read_ext_filter(field) is None


@pytest.mark.parametrize("pattern", [
    "", "a", "a|b", r"(?i)a", r"(?i:a)", r"(?s-m:a)", r"(?P<n>a)", r"(?:a)*?", r"a{2,}",
    "a{0,999}?", "a{", "]", "[^a]", "[a-z0-9_]", "[*+?}]", "[-a]", r"[\d\]]", "[[:alpha:]x]",
    r"\a\f\t\n\r\v", r"\_\-\\", r"\b\B\A", "\u00e9\n", "[a&&b||c]", r"\ ", r"\(\?=a\)", r"\++",
])
def test_regular_expressions_that_go_and_python_share_are_accepted(pattern):
    check_regexp(pattern)


@pytest.mark.parametrize("pattern", [
    "*", "(?i)*", "a(?i)*", "a**", "a++", "a{2}{3}", "a{1001}", "a{3,2}", "(", ")", "(?=a)",
    "(?!a)", "(?<=a)", "(?<n>a)", "(?P=n)", "(?>a)", "(?#a)", "(?(1)a|b)", "(?x)a",
    "(?P<n>a)(?P<n>b)", "[", "[]", "[^", "[b-a]", r"[a-\d]", "[a", r"\Z", r"(a)\1", "a\\", r"\Qa\E",
    r"\pL",
])
def test_other_regular_expressions_are_refused(pattern):
    with pytest.raises(ValueError):
        check_regexp(pattern)


@pytest.mark.parametrize("pattern", [
    "", "eu-*", "a?c", "[abc]", "[!abc]", "[a-z]", "[!0-9]", "{eu,us}-*", "{[ab]c,d?}", r"\*\[",
    "a,b", "a-b!", "**",
])
def test_globs_are_accepted(pattern):
    check_glob(pattern)


@pytest.mark.parametrize("pattern", [
    "[a", "eu-[", "[!]", "[]", "eu-[9-1]", "[a-]", "[a-z0-9]", "[a-zA]", "]", "{a", "a}",
    "{a,{b,c}}", "{a,}", "{}", "a\\",
])
def test_other_globs_are_refused(pattern):
    with pytest.raises(ValueError):
        check_glob(pattern)
