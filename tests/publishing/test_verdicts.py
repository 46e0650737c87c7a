"""What nsqd's answer to a publish means."""

from __future__ import annotations

import pytest

from nsqclient.errors import server_error
from nsqclient.publishing.verdicts import (
    Verdict,
    is_about_one_message,
    rejection,
    verdict_of,
)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (None, Verdict.STORED),
        (b"E_BAD_MESSAGE too big", Verdict.REJECTED),
        (b"E_PUB_FAILED disk", Verdict.REJECTED),
        (b"E_MPUB_FAILED disk", Verdict.UNKNOWN),
    ],
)
def test_each_answer_has_a_verdict(answer, verdict):
    """Only a failed MPUB may be stored in part."""
    assert verdict_of(None if answer is None else server_error(answer)) is verdict


@pytest.mark.parametrize(
    ("answer", "retryable", "one"),
    [
        (b"E_BAD_TOPIC t", False, False),
        (b"E_BAD_MESSAGE too big", False, True),
        (b"E_BAD_BODY too big", False, True),
        (b"E_PUB_FAILED disk", True, False),
        (b"E_DPUB_FAILED disk", True, False),
    ],
)
def test_what_a_refusal_says(answer, retryable, one):
    """A rejection has nsqd's code and address, and says whether a retry is worth it."""
    error = server_error(answer)
    refused = rejection("nsqd:4150", error)
    assert (refused.code, refused.retryable) == (error.code, retryable)
    assert "nsqd:4150" in str(refused)
    assert is_about_one_message(error) is one
