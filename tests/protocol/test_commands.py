"""Commands: the exact bytes, and invalid arguments."""

import pytest

from nsqclient.errors import (
    InvalidChannelError, InvalidMessageError, InvalidTopicError, LocalProtocolError,
)
from nsqclient.protocol import commands
from tests.support.native import FORMS

ID = b"0123456789abcdef"


@pytest.mark.parametrize(
    "built, wire",
    [
        (commands.NOP, b"NOP\n"),
        (commands.CLS, b"CLS\n"),
        (commands.identify({}), b"IDENTIFY\n\0\0\0\2{}"),
        (commands.auth("s3cret"), b"AUTH\n\0\0\0\6s3cret"),
        (commands.auth("é"), b"AUTH\n\0\0\0\2\xc3\xa9"),
        (commands.sub("t", "c#ephemeral"), b"SUB t c#ephemeral\n"),
        (commands.pub("t", b"hi"), b"PUB t\n\0\0\0\2hi"),
        (commands.pub("t", b"\n"), b"PUB t\n\0\0\0\1\n"),
        (commands.dpub("t", 0, b"hi"), b"DPUB t 0\n\0\0\0\2hi"),
        (commands.dpub("t", 3_600_000, b"hi"), b"DPUB t 3600000\n\0\0\0\2hi"),
        (commands.mpub("t", [b"a", b"bc"]),
         b"MPUB t\n\0\0\0\x0f\0\0\0\2\0\0\0\1a\0\0\0\2bc"),
        (commands.rdy(0, 2500), b"RDY 0\n"),
        (commands.rdy(2500, 2500), b"RDY 2500\n"),
        (commands.req(ID, 0), b"REQ 0123456789abcdef 0\n"),
        (commands.req(ID, 90_000), b"REQ 0123456789abcdef 90000\n"),
        (commands.touch(ID), b"TOUCH 0123456789abcdef\n"),
    ],
)
def test_each_command_is_these_bytes(built, wire):
    assert built == wire


@pytest.mark.parametrize("native", FORMS)
def test_bodies_are_packed_behind_what_precedes_them(native):
    pack = native.pack_bodies if native else commands.pack_bodies_in_python
    assert pack([], b"") == b"\0\0\0\0"
    assert pack([b"ab"], b"MPUB t\n") == b"MPUB t\n" b"\0\0\0\1" b"\0\0\0\2ab"
    long = b"x" * 70_000
    assert pack((b"", long), b"") == b"\0\0\0\2" b"\0\0\0\0" + b"\0\1\x11\x70" + long
    for wrong in ([b"a", "b"], [None], 5):
        with pytest.raises(TypeError):
            pack(wrong, b"")


@pytest.mark.parametrize("body", [bytearray(b"hi"), memoryview(b"hi"), memoryview(b"h.i.")[::2]])
def test_bytes_like_bodies_are_accepted(body):
    assert commands.check_body(body, 2) == b"hi"
    assert commands.check_bodies([body], 2) == [b"hi"]


_BAD_BODIES = [
    (b"", "empty"), (bytearray(), "empty"), ("text", "encode it first"), ("", "encode it first"),
    (None, r"must be bytes, not NoneType: .*publish_json\(\)"), ([b"x"], "not list"),
]


@pytest.mark.parametrize("body, why", _BAD_BODIES)
def test_a_body_that_nsqd_rejects_is_refused(body, why):
    for check in (
        lambda: commands.check_body(body, 2**20),
        lambda: commands.check_mpub([b"good", body], 2**20, 2**20),
    ):
        with pytest.raises(InvalidMessageError, match=why):
            check()


@pytest.mark.parametrize("check", [
    lambda size: commands.check_body(b"x" * size, 10),
    lambda size: commands.check_mpub([b"x", b"x" * size], 10, 100),
])
def test_a_message_over_the_limit_is_refused(check):
    assert check(10)
    with pytest.raises(InvalidMessageError, match="11 bytes is over nsqd's limit of 10.*option"):
        check(11)


def test_an_mpub_over_the_body_limit_is_refused():
    bodies = [b"x" * 10, b"y" * 7]
    assert commands.mpub_size(bodies) == 4 + 14 + 11
    assert commands.check_mpub(bodies, 10, 29) == bodies
    with pytest.raises(InvalidMessageError, match="29 bytes is over nsqd's limit of 28.*option"):
        commands.check_mpub(bodies, 10, 28)


@pytest.mark.parametrize("build, error", [
    (lambda name: commands.sub(name, "c"), InvalidTopicError),
    (lambda name: commands.sub("t", name), InvalidChannelError),
])
@pytest.mark.parametrize("name", ["", "a b", "t\nNOP", "x" * 65, b"t", None])
def test_an_invalid_name_is_not_built(build, error, name):
    with pytest.raises(error):
        build(name)


#: Each would cost the connection; what does not look like an id could become another command.
NOT_BUILT = [
    (commands.check_mpub, ([], 10, 100), InvalidMessageError, "at least one"),
    (commands.check_mpub, (b"one body", 10, 100), InvalidMessageError, "not int"),
    (commands.check_mpub, ("text", 10, 100), InvalidMessageError, "encode it first"),
    *((commands.check_delay, (delay, 3_600_000), InvalidMessageError, "0 to 3600 s")
      for delay in (-1, 3_600_001, 10**30, float("nan"))),
    *((commands.rdy, (count, most), LocalProtocolError,
       f"RDY {count} is out of range: 0 to {most}")
      for count, most in ((-1, 2500), (2501, 2500), (1, 0))),
    *((build, (name, *more), LocalProtocolError, "16 bytes without a space")
      for build, *more in ((commands.touch,), (commands.req, 0))
      for name in (b"0123456789abcde", b"0123456789abcdef0", b"0123456789abcd\nf",
                   b"01234567 9abcdef")),
    (commands.req, (ID, -1), LocalProtocolError, "negative"),
]


@pytest.mark.parametrize("build, arguments, error, why", NOT_BUILT)
def test_what_nsqd_would_refuse_is_not_built(build, arguments, error, why):
    with pytest.raises(error, match=why):
        build(*arguments)


@pytest.mark.parametrize("delay", [9_223_372_036_855, 2**64, 10**300], ids="{:.0e}".format)
def test_a_huge_requeue_delay_is_clamped(delay):
    """nsqd's nanoseconds would overflow, and the message return immediately."""
    sent = int(commands.req(ID, delay).split()[2])
    assert 0 < sent * 1_000_000 < 2**63


@pytest.mark.parametrize("bodies", [
    [b"a", b""], [b"a", "text"], [b"a", b"x" * 11], [bytearray(b"x" * 11)], [None],
])
def test_bodies_that_nsqd_would_refuse(bodies):
    with pytest.raises(InvalidMessageError):
        commands.check_bodies(iter(bodies), 10)


@pytest.mark.parametrize(
    ("sizes", "limit", "parts"),
    [
        ([], 100, []),
        ([10, 10], 100, [2]),
        ([10, 10], 4 + 2 * 14, [2]),
        ([10, 10], 4 + 2 * 14 - 1, [1, 1]),
        ([500, 1, 1], 100, [1, 2]),
    ],
)
def test_each_part_fits_into_one_mpub(sizes, limit, parts):
    chunks = commands.chunk_bodies([b"x" * size for size in sizes], limit)
    assert [len(chunk) for chunk in chunks] == parts


def test_parts_are_of_limited_count():
    parts = commands.chunk_bodies([b"x"] * (commands.MAX_PER_MPUB + 1), 10**9)
    assert [len(part) for part in parts] == [commands.MAX_PER_MPUB, 1]


def test_a_value_becomes_json_in_utf_8():
    assert commands.json_body({"a": [1, None, "Zoë"]}) == '{"a":[1,null,"Zoë"]}'.encode()


@pytest.mark.parametrize("value, reason", [
    ({"a": b"x"}, "bytes is not JSON serializable"), (float("nan"), "not JSON compliant"),
    ("\ud800", "surrogates"), ({(1, 2): 3}, "keys must be"),
])
def test_a_value_that_json_lacks_is_refused(value, reason):
    with pytest.raises(InvalidMessageError, match=f"no JSON can be made of the .*{reason}"):
        commands.json_body(value)
