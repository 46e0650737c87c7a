"""Functions that are rejected as a handler or callback, because a call would do nothing."""

import functools
import types
from unittest import mock

import pytest

from nsqclient.errors import ConfigError
from nsqclient.runtime.arguments import check_function, check_result


def plain(message):
    """A handler as it should be."""


async def coroutine(message):
    """Does nothing unless awaited."""


def generator(message):
    """Does nothing unless iterated."""
    yield message


async def async_generator(message):
    """Does nothing unless iterated."""
    yield message


@types.coroutine
def old_coroutine(message):
    """How a coroutine was written before async def."""
    yield message


LAZY = [coroutine, generator, async_generator, old_coroutine]


class Shop:
    def plain(self, message):
        """A handler as it should be."""

    async def coroutine(self, message):
        """Does nothing unless awaited."""

    @classmethod
    async def of_class(cls, message):
        """Does nothing unless awaited."""


class AsyncCallable:
    """An object whose call is asynchronous."""

    async def __call__(self, message):
        """Does nothing unless awaited."""


def runs_it(function):
    """Wrap an async function in a function that runs it."""
    @functools.wraps(function)
    def run(message):
        """Runs the wrapped coroutine to its end."""
        with pytest.raises(StopIteration):
            function(message).send(None)

    return run


def awaits_it(function):
    """Wrap a plain function in an async one."""
    @functools.wraps(function)
    async def run(message):
        """Does nothing unless awaited."""
        return function(message)

    return run


@pytest.mark.parametrize("function", [
    *LAZY, Shop().coroutine, Shop().of_class, AsyncCallable(),
    functools.partial(functools.partial(generator)), functools.partial(Shop().coroutine),
    staticmethod(coroutine), awaits_it(plain), lambda message: (yield message),
])
def test_a_function_that_would_do_nothing_is_refused(function):
    """Asynchronous or a generator, behind whatever it is called through."""
    with pytest.raises(ConfigError, match="on_x: .* would do nothing.*write"):
        check_function(function, "on_x", "message")


class Proxy:
    """Stands in for a function that takes more than one argument, and gives them to it."""

    __class__ = property(lambda self: types.FunctionType)
    __code__ = (lambda message, database: None).__code__

    def __call__(self, message):
        """Gives it the database too."""


@pytest.mark.parametrize("function", [
    plain, Shop().plain, functools.partial(Shop.plain, Shop()), print, [].append,
    runs_it(coroutine),
    lambda *anything: None, lambda message, database=None: None,
    functools.partial(lambda message, database: None, database=1),
    functools.wraps(lambda message, database: None)(lambda message: None),
    functools.lru_cache(plain), Proxy(), staticmethod(plain),
    mock.Mock(), mock.MagicMock(), mock.create_autospec(plain), mock.Mock(spec=plain),
])
def test_a_function_that_can_be_called_is_accepted(function):
    """Also a plain wrapper around an async function, and one without a signature."""
    check_function(function, "handler", "message")


@pytest.mark.parametrize("function", [
    lambda: None, lambda message, database: None, lambda *, message: None, Shop.plain,
    functools.partial(plain, 1), "".isalnum, functools.partial(Shop().plain, 1),
    mock.create_autospec(lambda: None),
])
def test_a_function_of_other_arguments_is_refused(function):
    with pytest.raises(ConfigError, match=r"cannot be called with \(message\): .*parameters"):
        check_function(function, "handler", "message")


def test_annotations_that_cannot_be_evaluated_are_no_problem():
    """A name that only a type checker imports is none of a running program's."""
    names = {}
    exec("def handle(message: 'Missing') -> 'Missing': ...", names)
    check_function(names["handle"], "handler", "message")


@pytest.mark.parametrize(("value", "words"), [
    (3, "handler is not callable: 3"), (Shop, "handler: Shop is a class: give .* an object"),
    (AsyncCallable, "is a class"), (mock.NonCallableMock(), "not callable"),
])
def test_what_is_no_function_is_refused(value, words):
    """A class would make an object of each message, and handle none."""
    with pytest.raises(ConfigError, match=words):
        check_function(value, "handler", "message")


def test_what_is_iterated_over_may_be_a_class_or_a_generator():
    """``discovery_filter=set`` returns addresses, and so does a generator."""
    check_function(set, "f", "addresses", may_be_class=True)
    check_function(generator, "f", "addresses", may_be_generator=True)
    with pytest.raises(ConfigError):
        check_function(async_generator, "f", "addresses", may_be_generator=True)


@pytest.mark.parametrize("function", [*LAZY, mock.AsyncMock()])
def test_a_result_that_is_still_to_be_done_is_a_failure(function):
    """And the coroutine is closed, else Python warns that it was never awaited."""
    with pytest.raises(TypeError, match="nothing runs.*write"):
        check_result(function(1))


@pytest.mark.parametrize("result", [None, False, 1, "x", [1], iter([1]), mock.MagicMock(), map])
def test_any_other_result_means_nothing(result):
    check_result(result)
