"""The exception tree, the table of nsqd's codes, and what each exception carries."""

import copy
import pickle

import pytest

from nsqclient import errors
from nsqclient.errors import SERVER_ERRORS, ServerError, server_error

EXAMPLES = [
    errors.ConfigError("x"), errors.ReentrantCallError(), errors.ConnectError("h:1", "refused"),
    errors.DiscoveryError("h:1", "refused"), errors.NSQHTTPTransportError("http://h:1", "refused"),
    errors.NSQHTTPStatusError("http://h:1", 400, "INVALID_TOPIC"),
    errors.ServerError("E_PUB_FAILED", "PUB failed"),
    errors.PublishRejectedError("r", "E_BAD_TOPIC", True),
    errors.PublishNotSentError("r", None, False), errors.PublishUnknownError("r"),
]


def _classes():
    found = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    return [cls for cls in found if issubclass(cls, Exception)]


def test_every_exception_is_an_nsq_error():
    assert [cls for cls in _classes() if not issubclass(cls, errors.NSQError)] == []


@pytest.mark.parametrize("cls", [
    errors.ConfigError, errors.InvalidTopicError, errors.InvalidChannelError,
    errors.InvalidMessageError,
])
def test_bad_values_are_value_errors(cls):
    assert issubclass(cls, ValueError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_pickle_and_copy_keep_all(error, clone):
    error.stored = 7  # as that of a publish_many, also after an error of another kind
    other = clone(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


def test_connection_errors_name_the_address():
    error = errors.ConnectError("nsqd:4150", "connection refused")
    assert str(error) == "nsqd:4150: connection refused"
    assert (error.address, error.reason) == ("nsqd:4150", "connection refused")


def test_only_late_answers_are_not_fatal():
    spared = {code for code in SERVER_ERRORS if not ServerError(code).fatal}
    assert spared == {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
    assert len(SERVER_ERRORS) == 19


@pytest.mark.parametrize("data, code, text", [
    (b"E_BAD_PROTOCOL", "E_BAD_PROTOCOL", ""),
    (b"E_NEW later nsqds say this", "E_NEW", "later nsqds say this"), (b"", "", ""),
    (b"E_INVALID \xff", "E_INVALID", "\\xff"),
    (b"E_BAD_TOPIC  two spaces", "E_BAD_TOPIC", " two spaces"),
])
def test_an_unusual_error_frame_still_gives_an_exception(data, code, text):
    error = server_error(data)
    assert str(error) == f"{code} {text}".rstrip()
    assert (error.code, error.text, error.fatal) == (code, text, True)


def test_a_publish_error_says_whether_it_may_be_retried():
    assert errors.PublishRejectedError("r").retryable is False
    assert errors.PublishNotSentError("r").retryable is True
    assert not issubclass(errors.PublishUnknownError, errors.PublishRejectedError)
    assert errors.PublishUnknownError("r").stored == 0
