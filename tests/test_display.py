"""Text of peers and numbers as logs, tables and pages show them: by value, and in errors."""

import json
import logging
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nsqclient.display import LONGEST_TEXT, masked_address, printable, without_password
from nsqclient.discovery import check_addresses
from nsqclient.errors import (
    ConfigError, ConnectError, DiscoveryError, NSQHTTPTransportError, NSQHTTPStatusError, NSQError,
    TLSError, server_error,
)
from nsqclient.http.nsqlookupd import NsqlookupdHTTP
from nsqclient.http.urls import lookup_url, nsqd_url
from nsqclient.log_records import LineFormatter
from nsqclient.protocol.events import read_settings
from nsqclient.protocol.peer_json import JsonReader
from nsqclient.runtime.addresses import parse_address
from tests.support.faults.hostile import NASTY, NASTY_BYTES, control_characters
from tests.support.fuzz import fuzz


@pytest.mark.parametrize(("text", "shown"), [
    ("plain, ünïcode, 日本", "plain, ünïcode, 日本"),
    ("a\nb\r\tc", r"a\nb\r\tc"),
    ("\x1b[2J\x00\x7f\x9b", r"\x1b[2J\x00\x7f\x9b"),
    ("\u2028\u2029\u202e\u2066\u200b", r"\u2028\u2029\u202e\u2066\u200b"),
    ("\ud800\U000e0001", r"\ud800\U000e0001"),
    ("back\\slash 'quoted'", "back\\slash 'quoted'"),
])
def test_control_characters_are_escaped(text, shown):
    """What would move a cursor, end a line or turn the direction is written as repr does."""
    assert printable(text) == shown


def test_a_long_text_is_cut():
    """A peer does not choose how long a log line is."""
    assert printable("x" * 11, 10) == "x" * 10 + "..."
    assert printable("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize(("text", "shown"), [
    ("http://user:pw@h:4161/x", "http://user:***@h:4161/x"),
    ("http://user@evil:pw@h:4161", "http://***@h:4161"),
    ("http://user:p@w:x@h:4161", "http://user:***@h:4161"),
    ("http://user:pa/ss@h:4161", "http://user:***@h:4161"),
    ("http://user:pa#ss?x@h:4161", "http://user:***@h:4161"),
    ("http://tok3n@h", "http://***@h"),
    ("http://:pw@h", "http://:***@h"),
    ("user:pw@h:4161", "user:***@h:4161"),
    ("https://h/lookup?token=tok3n&x=y", "https://h/lookup?***"),
    ("https://u:pw@h/lookup?token=tok3n", "https://u:***@h/lookup?***"),
    ("http://h:4161/lookup", "http://h:4161/lookup"),
    ("h:4161", "h:4161"),
])
def test_an_address_is_shown_without_its_secrets(text, shown):
    """No password, no user that may be a token, no query; also within a sentence."""
    assert masked_address(text) == without_password(text) == shown
    if "://" in text:
        assert without_password(f"nsqlookupd '{text} : mail a@b") == (
            f"nsqlookupd '{shown} : mail a@b")


_SECRETS = st.text(max_size=12) | st.text("/?#@:,[]% \t\n\\%a1.", max_size=12)


@fuzz
@given(
    user=st.text(max_size=8) | st.text("/?#@:,[]% \ta1.", max_size=8), before=_SECRETS,
    after=_SECRETS, has_password=st.booleans(),
    form=st.sampled_from([
        "http://{}@h:4161", "{}@h:4161", "https://{}@[::1]:4161/x", "http://{}@h:4161?a=b",
        "http://{}@", "{}@h", "ftp://{}@h:1", "a:4161,http://{}@h:4161",
    ]),
)
def test_no_shown_form_of_an_address_has_the_password(user, before, after, has_password, form):
    """Whatever user and password are: refused or taken, the secret is in no text."""
    secret = "tok3n-"
    assume(secret not in user and secret not in before)
    password = before + secret + after
    userinfo = f"{user}:{password}" if has_password else password.replace(":", "")  # a token
    address = form.format(userinfo)
    texts = [masked_address(address)]
    for use in (lookup_url, lambda each: nsqd_url(each, "stats"), parse_address, NsqlookupdHTTP,
                lambda each: check_addresses([], [each]), lambda each: check_addresses([each], []),
                lambda each: check_addresses(each, [])):
        try:
            made = use(address)
        except ConfigError as exc:
            texts.append(str(exc))
            continue
        texts += [without_password(address), str(DiscoveryError(address, "x"))]
        if isinstance(made, str):
            texts.append(str(NSQHTTPTransportError(made, "refused")))
            texts.append(without_password(f"at {made}: x"))
        if isinstance(made, NsqlookupdHTTP):
            texts.append(repr(made))
            made.close()
    assert not [text for text in texts if secret in text]


@pytest.mark.parametrize("error", [
    NSQError(NASTY), ConnectError("h:1", NASTY), DiscoveryError("h:1", NASTY), TLSError(NASTY),
    NSQHTTPTransportError("http://h:1", NASTY), NSQHTTPStatusError("http://h:1", 500, NASTY),
    server_error(b"E_INVALID " + NASTY_BYTES), server_error(NASTY_BYTES),
], ids=lambda error: type(error).__name__)
def test_an_error_of_a_peer_is_one_line(error):
    for text in (str(error), *map(str, vars(error).values())):
        assert "\n" not in text and control_characters(text) == []
        assert "forged" in str(error)


def test_an_error_frame_of_a_megabyte_is_a_short_error():
    assert len(str(server_error(b"E_INVALID " + b"x" * 1_000_000))) <= LONGEST_TEXT + 10
    assert len(str(NSQHTTPStatusError("u", 500, "x" * 1_000_000))) < LONGEST_TEXT + 50


def test_texts_of_an_http_answer_and_of_identify_are_printable():
    fields = JsonReader({"version": NASTY, "topics": [NASTY, "t"]}, "its answer")
    assert fields.text("version") == printable(NASTY)
    assert fields.texts("topics") == (printable(NASTY), "t")
    settings = read_settings(json.dumps({"version": NASTY}).encode())
    assert settings.version == printable(NASTY)


def test_a_log_line_of_a_tool_is_one_line():
    """Also where another library or a handler put something else into the record."""
    formatter = LineFormatter("%(levelname)s %(message)s")
    try:
        raise ValueError(NASTY)
    except ValueError:
        record = logging.LogRecord("nsqclient", logging.ERROR, "", 1, "failed: %s", (NASTY,),
                                   sys.exc_info())
    lines = formatter.format(record).split("\n")
    assert lines[0] == "ERROR failed: " + printable(NASTY)
    assert all(line.startswith("  ") for line in lines[1:])
    assert control_characters("".join(lines)) == []
