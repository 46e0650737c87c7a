"""The exception tree, the table of nsqd's codes, and what each exception carries."""

from __future__ import annotations

import copy
import pickle

import pytest

from nsqclient import errors
from nsqclient.errors import SERVER_ERRORS, ServerError, server_error

EXAMPLES = [
    errors.ConfigError("x"),
    errors.InvalidTopicError("x"),
    errors.InvalidMessageError("x"),
    errors.ClosedError("x"),
    errors.ReentrantCallError(),
    errors.ConnectError("h:1", "refused"),
    errors.ConnectionLostError("h:1", "reset"),
    errors.WriteTimeoutError("h:1", "deaf"),
    errors.NotNSQError("x"),
    errors.DiscoveryError("h:1", "refused"),
    errors.NSQHTTPTransportError("http://h:1", "refused"),
    errors.NSQHTTPStatusError("http://h:1", 400, "INVALID_TOPIC"),
    errors.ServerError("E_PUB_FAILED", "PUB failed"),
    errors.PublishRejectedError("r", "E_BAD_TOPIC", True),
    errors.PublishNotSentError("r", None, False),
    errors.PublishUnknownError("r"),
]


def _classes():
    found = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    return [cls for cls in found if issubclass(cls, Exception)]


@pytest.mark.parametrize("cls", _classes())
def test_every_exception_is_an_nsq_error(cls):
    """Every exception of the package is an NSQError, so that one clause catches all."""
    assert issubclass(cls, errors.NSQError)


@pytest.mark.parametrize("cls", _classes())
def test_the_module_docstring_draws_the_tree_of_errors(cls):
    """The module's docstring shows each class."""
    assert cls.__name__ in errors.__doc__


@pytest.mark.parametrize(
    "cls",
    [
        errors.ConfigError,
        errors.InvalidTopicError,
        errors.InvalidChannelError,
        errors.InvalidMessageError,
    ],
)
def test_bad_values_are_value_errors(cls):
    """What the caller passed wrongly can also be caught as ValueError."""
    assert issubclass(cls, ValueError)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_pickle_and_copy_keep_all(error, clone):
    """An exception crosses processes with its message and its data."""
    error.stored = 7  # as that of a publish_many, also after an error of another kind
    other = clone(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


def test_connection_errors_name_the_address():
    """The message says which nsqd, and the attributes say it to programs."""
    error = errors.ConnectError("nsqd:4150", "connection refused")
    assert str(error) == "nsqd:4150: connection refused"
    assert (error.address, error.reason) == ("nsqd:4150", "connection refused")


def test_only_late_answers_are_not_fatal():
    """Of nsqd's nineteen codes sixteen cost the connection."""
    spared = {code for code in SERVER_ERRORS if not ServerError(code).fatal}
    assert spared == {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
    assert len(SERVER_ERRORS) == 19


@pytest.mark.parametrize(
    "data, code, text",
    [
        (b"E_BAD_PROTOCOL", "E_BAD_PROTOCOL", ""), (b"E_INVALID x y", "E_INVALID", "x y"),
        (b"E_NEW later nsqds say this", "E_NEW", "later nsqds say this"),
        (b"", "", ""),
        (b"E_INVALID \xff", "E_INVALID", "\\xff"),
        (b"E_BAD_TOPIC  two spaces", "E_BAD_TOPIC", " two spaces"),
    ],
)
def test_an_unusual_error_frame_still_gives_an_exception(data, code, text):
    """Unknown codes, missing texts and bytes that are not UTF-8 still give an exception."""
    error = server_error(data)
    assert str(error) == f"{code} {text}".rstrip()
    assert (error.code, error.text, error.fatal) == (code, text, True)


def test_a_publish_error_says_whether_it_may_be_retried():
    """Rejected is final unless it says otherwise; what was not sent may be tried again."""
    assert errors.PublishRejectedError("r").retryable is False
    assert errors.PublishNotSentError("r").retryable is True
    assert not issubclass(errors.PublishUnknownError, errors.PublishRejectedError)
    assert errors.PublishUnknownError("r").stored == 0
