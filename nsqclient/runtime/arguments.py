"""Checks the arguments of the public classes: names of keyword arguments, and functions.

Calling an ``async def`` or a generator function runs none of its code. As a handler, it would do
nothing, and every message would be finished.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import (
    AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping,
)
from concurrent.futures import Future
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from typing import Any, TypeVar

from nsqclient.errors import ConfigError

C = TypeVar("C", bound=type)

#: Class -> (its keyword arguments, text that says where they belong).
_known: dict[str, tuple[tuple[str, ...], str]] = {}

_ASYNC = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR
_LAZY = (Awaitable, Generator, AsyncGenerator)
#: Checked first, because isinstance() with an abstract class takes a microsecond.
_PLAIN = frozenset([type(None), bool, int, float, str, bytes, list, tuple, dict, set])


def closest(name: str, known: Iterable[str]) -> str:
    """Return the most similar name, or ""."""
    import difflib  # imported here, so that commands start faster

    close = difflib.get_close_matches(name, list(known), 1)
    return close[0] if close else ""


def note_names(shown: str, names: Iterable[str], place: str) -> None:
    """Register the keyword arguments of a class that is not imported yet; see ``checks_names``."""
    _known[shown] = tuple(names), place


def checks_names(place: str, *others: str, shown: str = "") -> Callable[[C], C]:
    """Decorate a class to raise a helpful TypeError for an unknown keyword argument.

    Args:
        place: says where ``{name}`` belongs, for the error of a class that does not accept it.
        others: names that the ``**arguments`` of the class accept.
        shown: the name of the class in errors, if another class has the same name.
    """

    def decorate(cls: C) -> C:
        init: Callable[..., None] = cls.__init__  # type: ignore[misc]
        names = (*tuple(inspect.signature(init).parameters)[1:], *others)
        key = shown or cls.__name__
        _known[key] = names, place

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            if len(args) == 1 and isinstance(args[0], Mapping):
                shown = ", ".join(f"{name}=..." for name in args[0])  # a value may be a secret
                raise TypeError(f"{cls.__name__}() takes keyword arguments, not a dict: write"
                                f" {cls.__name__}({shown})")
            if not kwargs.keys() <= set(names):
                check_names(key, kwargs)
            init(self, *args, **kwargs)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorate


def check_names(cls: str, given: Iterable[str]) -> None:
    """Raise TypeError for an unknown name. It suggests a similar name, or where it belongs."""
    own, _ = _known[cls]
    for name in given:
        if name not in own:
            hint = _hint(name, cls)
            raise TypeError(f"{cls}() has no argument {name!r}" + (f": {hint}" if hint else ""))


def check_unknown(function: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise TypeError if a publish was given unknown keyword arguments; suggests the right name."""
    for name in given:
        close = "defer" if name in ("delay", "deferred") else closest(name, known)
        hint = f": write {close}=" if close else ""
        raise TypeError(f"{function}() has no argument {name!r}{hint}")


def _hint(name: str, cls: str) -> str:
    # Subclasses (names with a dot) come last: they have every argument of their base class.
    others = [_known[other] for other in sorted(_known, key=lambda key: "." in key) if other != cls]
    for names, place in others:
        if name in names:
            return f"it is {place.format(name=name)}"
    close = closest(name, _known[cls][0])
    if close:
        return f"did you mean {close}?"
    for names, place in others:
        close = closest(name, names)
        if close:
            return f"did you mean {close}? It is {place.format(name=close)}"
    return ""


def show_function(function: object) -> str:
    """Return the name of a function for a log, without its partials and wrappers."""
    function = getattr(inspect.unwrap(function) if callable(function) else function,
                       "func", function)
    for name in ("__qualname__", "__name__"):
        found = getattr(function, name, None)
        if isinstance(found, str):
            return found
    return type(function).__qualname__


def check_function(
    function: object, name: str, *arguments: str, may_be_class: bool = False,
    may_be_generator: bool = False,
) -> None:
    """Reject a function that cannot be called, or would do nothing.

    A plain wrapper of an ``async def`` may run it, so ``__wrapped__`` is ignored.

    Args:
        name: the argument, such as ``on_error``.
        arguments: names of the positional arguments of the call.
        may_be_class, may_be_generator: for a function whose result is iterated over.

    Raises:
        ConfigError: says what to write instead.
    """
    if not callable(function):
        raise ConfigError(f"{name} is not callable: {function!r:.80}")
    shown = getattr(function, "__qualname__", None)
    shown = shown if isinstance(shown, str) else f"{function!r:.80}"
    if isinstance(function, type) and not may_be_class:
        raise ConfigError(f"{name}: {shown} is a class: give a function, or an object of the class")
    flags = _find_flags(function)
    if flags & _ASYNC:
        raise ConfigError(
            f"{name}: {shown} is asynchronous, and calling it would do nothing: it is called in a"
            " thread; write def, not async def"
        )
    if flags & CO_GENERATOR and not may_be_generator:
        raise ConfigError(
            f"{name}: {shown} is a generator, and calling it would do nothing: write it without"
            " yield"
        )
    problem = _find_misfit(function, arguments)
    if problem:
        raise ConfigError(
            f"{name}: {shown} cannot be called with ({', '.join(arguments)}): {problem}; give it"
            " these parameters, and bind others with functools.partial"
        )


def check_result(result: object, may_be_future: bool = True) -> None:
    """Raise if a call has returned unfinished work. Closes a coroutine, to prevent a warning.

    Args:
        may_be_future: accept a Future, whose work continues in the background.

    Raises:
        TypeError: says what to write instead.
    """
    if not may_be_future and isinstance(result, Future):
        raise TypeError(
            f"it returned {result!r:.80}, and nobody waits for that: return after its result(), or"
            " call enable_async() and answer the message when it is done"
        )
    if type(result) in _PLAIN or not isinstance(result, _LAZY):
        return
    if isinstance(result, (Coroutine, Generator)):
        result.close()
    advice = "without yield" if isinstance(result, Generator) else "def, not async def"
    raise TypeError(
        f"it returned {result!r:.80}, which nothing runs: do the work before returning (write"
        f" {advice})"
    )


def _find_flags(function: Any) -> int:
    """Return the code flags of the Python function that a call runs, or 0."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, (types.FunctionType, types.MethodType, staticmethod)):
        function = getattr(type(function), "__call__", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_flags if isinstance(code, types.CodeType) else 0


def _find_misfit(function: object, arguments: tuple[str, ...]) -> str:
    if function.__class__ is not type(function):
        return ""  # a proxy: its signature is that of another function
    try:
        # A wrapper may add arguments, so only its own signature counts.
        signature = inspect.signature(function, follow_wrapped=False)  # type: ignore[arg-type]
    except Exception:  # no signature; annotations and proxies may raise any error
        return ""
    try:
        signature.bind(*arguments)
    except TypeError as exc:
        return str(exc)
    return ""
