"""Names of topics and channels."""

import pytest

from nsqclient.errors import InvalidChannelError, InvalidTopicError
from nsqclient.protocol.names import check_channel, check_topic, is_ephemeral, is_valid_name

VALID = [
    "a", "A", "0", ".", "_", "-", "a.b_c-D9", "x" * 64, "a#ephemeral", "x" * 54 + "#ephemeral",
]
INVALID = [
    "", "x" * 65, "#ephemeral", "x" * 55 + "#ephemeral", "a#", "a#Ephemeral", "a#ephemeral ",
    "a#ephemeral#ephemeral", "a b", " a", "a\n", "a\n#ephemeral", "a#ephemeral\n", "a\0", "a/b",
    "a*", "café", "t\u00b2", "\u0661", "a$b", "a:b",
]


@pytest.mark.parametrize("name", VALID)
def test_a_valid_name_is_accepted(name):
    assert is_valid_name(name)
    assert check_topic(name) == check_channel(name) == name


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_name_is_rejected(name):
    assert not is_valid_name(name)
    with pytest.raises(InvalidTopicError, match="^topic name .* is not valid: use 1 to 64"):
        check_topic(name)
    with pytest.raises(InvalidChannelError, match="^channel name .* is not valid: use 1 to 64"):
        check_channel(name)


@pytest.mark.parametrize("name", [None, b"topic", 5, ["t"], True])
def test_a_name_must_be_a_string(name):
    with pytest.raises(InvalidTopicError, match="must be a str, not .*: pass the topic as"):
        check_topic(name)
    with pytest.raises(InvalidChannelError):
        check_channel(name)


@pytest.mark.parametrize(
    "name, answer", [("a#ephemeral", True), ("a", False), ("ephemeral", False)]
)
def test_an_ephemeral_name_is_recognised(name, answer):
    assert is_ephemeral(name) is answer
