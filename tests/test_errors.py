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
    errors.PubFailedError("E_PUB_FAILED", "PUB failed"),
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
    """The module's docstring shows each class, those of single error codes aside."""
    assert cls.__name__ in errors.__doc__ or issubclass(cls, ServerError)


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
    other = clone(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


@pytest.mark.parametrize("cls", [errors.PublishRejectedError, errors.PublishNotSentError,
                                 errors.PublishUnknownError])
def test_pickle_keeps_what_is_stored(cls):
    """How much of a publish_many is stored survives pickling, whatever its outcome."""
    error = cls("reason")
    error.stored = 7
    assert pickle.loads(pickle.dumps(error)).stored == 7


def test_connection_errors_name_the_address():
    """The message says which nsqd, and the attributes say it to programs."""
    error = errors.ConnectError("nsqd:4150", "connection refused")
    assert str(error) == "nsqd:4150: connection refused"
    assert (error.address, error.reason) == ("nsqd:4150", "connection refused")


@pytest.mark.parametrize("code", SERVER_ERRORS)
def test_every_code_of_nsqd_has_its_class(code):
    """Each of nsqd's codes has its class, whose ``fatal`` is what the table says."""
    cls, fatal = SERVER_ERRORS[code]
    error = server_error(f"{code} some text here".encode())
    assert type(error) is cls
    assert (error.code, error.text, error.fatal) == (code, "some text here", fatal)
    assert str(error) == f"{code} some text here"


def test_only_late_answers_are_not_fatal():
    """Of nsqd's nineteen codes sixteen cost the connection."""
    spared = {code for code, (_, fatal) in SERVER_ERRORS.items() if not fatal}
    assert spared == {"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"}
    assert len(SERVER_ERRORS) == 19


@pytest.mark.parametrize(
    "data, code, text",
    [
        (b"E_BAD_PROTOCOL", "E_BAD_PROTOCOL", ""),
        (b"E_NEW later nsqds say this", "E_NEW", "later nsqds say this"),
        (b"", "", ""),
        (b"E_INVALID \xff", "E_INVALID", "\\xff"),
        (b"E_BAD_TOPIC  two spaces", "E_BAD_TOPIC", " two spaces"),
    ],
)
def test_an_unusual_error_frame_still_gives_an_exception(data, code, text):
    """Unknown codes, missing texts and bytes that are not UTF-8 still give an exception."""
    error = server_error(data)
    assert (error.code, error.text, error.fatal) == (code, text, True)


def test_a_publish_error_says_whether_it_may_be_retried():
    """Rejected is final unless it says otherwise; what was not sent may be tried again."""
    assert errors.PublishRejectedError("r").retryable is False
    assert errors.PublishNotSentError("r").retryable is True
    assert not issubclass(errors.PublishUnknownError, errors.PublishRejectedError)
    assert errors.PublishUnknownError("r").stored == 0
