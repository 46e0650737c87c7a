"""What nsqd's answer to a publish means."""

from __future__ import annotations

import pytest

from nsqclient.errors import (
    ConnectError, PublishNotSentError, PublishRejectedError, PublishUnknownError, server_error,
)
from nsqclient.producer.outcome import (
    Attempts, PublishOutcome, final_error, is_one_at_fault, rejection, outcome_of,
)


@pytest.mark.parametrize(("answer", "outcome"), [
    (b"E_PUB_FAILED disk", PublishOutcome.REJECTED),
    (b"E_MPUB_FAILED disk", PublishOutcome.UNKNOWN),
])
def test_each_answer_has_an_outcome(answer, outcome):
    """Only a failed MPUB may be stored in part."""
    assert outcome_of(server_error(answer)) is outcome


@pytest.mark.parametrize(("answer", "retryable", "one"), [
    (b"E_BAD_TOPIC t", False, False), (b"E_BAD_MESSAGE too big", False, True),
    (b"E_BAD_BODY too big", False, True), (b"E_PUB_FAILED disk", True, False),
    (b"E_DPUB_FAILED disk", True, False),
])
def test_what_a_refusal_says(answer, retryable, one):
    """A rejection has nsqd's code and address, and says whether a retry is worth it."""
    error = server_error(answer)
    refused = rejection("nsqd:4150", error)
    assert (refused.code, refused.retryable) == (error.code, retryable)
    assert "nsqd:4150" in str(refused)
    assert is_one_at_fault(PublishOutcome.REJECTED, error, 2) is one
    assert not is_one_at_fault(PublishOutcome.REJECTED, error, 1)


@pytest.mark.parametrize(("reason", "maybe_stored", "kind"), [
    (None, False, PublishNotSentError),
    (ConnectError("nsqd:4150", "refused"), False, PublishNotSentError),
    (server_error(b"E_PUB_FAILED disk"), False, PublishRejectedError),
    (server_error(b"E_PUB_FAILED disk"), True, PublishUnknownError),
])
def test_final_error_depends_on_what_the_attempts_led_to(reason, maybe_stored, kind):
    """A message that may be stored is unknown; a rejection has the code of nsqd."""
    error = final_error("not stored", reason, maybe_stored)
    assert type(error) is kind and str(error) == "not stored"
    if kind is PublishRejectedError:
        assert error.code == "E_PUB_FAILED" and error.retryable


@pytest.mark.parametrize("maybe_stored, text", [
    (False, "no nsqd stored the message within 2 s: nsqd:4150: refused"),
    (True, "the outcome is unknown: no nsqd confirmed the message within 2 s: nsqd:4150: refused"),
])
def test_an_unknown_outcome_is_not_called_not_stored(maybe_stored, text):
    attempts = Attempts(2.0, 100, True, maybe_stored=maybe_stored)
    assert str(attempts.timed_out(ConnectError("nsqd:4150", "refused"))).startswith(text)
