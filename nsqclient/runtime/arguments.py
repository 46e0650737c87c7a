"""``checks_names``: unknown keyword arguments of the public classes, and what was meant.

Python's own error says that a name is unknown. A person wants to know which one is close, or where
the name belongs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

C = TypeVar("C", bound=type)

#: Class -> (its keyword arguments, where a name belongs that another class was given).
_known: dict[str, tuple[tuple[str, ...], str]] = {}


def closest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the name that was probably meant; empty when none is close: ``likeness`` of 1."""
    import difflib  # for mistakes only: a command starts faster without it

    close = difflib.get_close_matches(name, list(known), 1, likeness)
    return close[0] if close else ""


def checks_names(place: str) -> Callable[[C], C]:
    """Decorate a class, so that an unknown keyword argument is a TypeError that says what to do.

    Args:
        place: where a name of this class belongs, with ``{name}``: shown where it is given to
            another class that is decorated.
    """

    def decorate(cls: C) -> C:
        init: Callable[..., None] = cls.__init__  # type: ignore[misc] # of this very class
        names = tuple(inspect.signature(init).parameters)[1:]
        _known[cls.__name__] = names, place

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            if not kwargs.keys() <= set(names):
                check_names(cls.__name__, kwargs)
            init(self, *args, **kwargs)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorate


def check_names(cls: str, given: Iterable[str]) -> None:
    """Check the names of keyword arguments for a decorated class.

    Raises:
        TypeError: one is unknown; says which was meant, or where it belongs.
    """
    own, _ = _known[cls]
    for name in given:
        if name not in own:
            hint = _hint(name, cls)
            raise TypeError(f"{cls}() has no argument {name!r}" + (f": {hint}" if hint else ""))


def refuse_names(call: str, given: Iterable[str], meant: Mapping[str, str]) -> NoReturn:
    """Refuse keyword arguments that a call does not have, and say which one was ``meant``.

    Raises:
        TypeError: always.
    """
    name = next(iter(given))
    hint = f": did you mean {meant[name]}?" if name in meant else ""
    raise TypeError(f"{call} has no argument {name!r}{hint}")


def _hint(name: str, cls: str) -> str:
    others = {other: found for other, found in _known.items() if other != cls}
    for names, place in others.values():
        if name in names:
            return f"it is {place.format(name=name)}"
    close = closest(name, _known[cls][0])
    if close:
        return f"did you mean {close}?"
    for names, place in others.values():
        close = closest(name, names)
        if close:
            return f"did you mean {close}? It is {place.format(name=close)}"
    return ""
