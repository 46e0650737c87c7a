"""Imports the targets of a command line: modules with handlers, a handler, a middleware."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

from nsqclient.consumer.processor import Handler
from nsqclient.errors import ConfigError
from nsqclient.runtime.arguments import check_function

logger: logging.Logger = logging.getLogger("nsqclient.worker")

#: Frames of these say nothing about the module that failed.
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class UsageError(ConfigError):
    """The command line is wrong."""


class UnknownTargetError(UsageError):
    """The command line names a module or a function that does not exist."""


class ImportFailedError(ConfigError):
    """A module raised an exception while it was imported."""


def load_module(name: str) -> ModuleType:
    """Import a module by its dotted name; the traceback of a failure is logged at DEBUG.

    Raises:
        UnknownTargetError: the module does not exist.
        ImportFailedError: it raised an exception.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        # A failed import inside the module is an error of the module.
        if exc.name is not None and f"{name}.".startswith(f"{exc.name}."):
            raise UnknownTargetError(
                f"there is no module {exc.name!r}{_function_hint(name) or _hint(name)}") from exc
        raise _import_failed(name, exc) from exc
    except (ValueError, TypeError) as exc:
        if not name.strip(".") or name.startswith("."):
            raise UnknownTargetError(
                f"{name!r} is not a module name: write it as shop.handlers") from exc
        raise _import_failed(name, exc) from exc
    except (Exception, SystemExit) as exc:
        raise _import_failed(name, exc) from exc


def load_object(path: str, what: str) -> Any:
    """Import ``package.module.name`` or ``package.module:name``.

    ``what``: for the error, such as "handler". Raises UnknownTargetError, ImportFailedError.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not module_name:
        raise UnknownTargetError(f"{what} {path!r}: give a dotted path such as shop.tasks.handle")
    try:
        module = load_module(module_name)
    except UnknownTargetError as exc:
        raise UnknownTargetError(f"{what} {path!r}: {exc}") from exc
    try:
        return getattr(module, name)
    except AttributeError:
        raise UnknownTargetError(f"{what} {path!r}: {module_name} has no {name!r}") from None


def load_handler(path: str) -> Handler:
    """Import a handler by its path. ConfigError if the object is not a handler."""
    found = load_object(path, "handler")
    check_function(found, f"handler {path!r}", "message")
    return cast(Handler, found)


def _import_failed(name: str, exc: BaseException) -> ImportFailedError:
    logger.debug("%s cannot be imported", name, exc_info=exc)
    kind = "" if isinstance(exc, ConfigError) else f"{type(exc).__name__}: "
    text = getattr(exc, "msg", None) if isinstance(exc, SyntaxError) else str(exc)
    return ImportFailedError(f"{name} cannot be imported: {kind}{text} ({_place(exc)})")


def _place(exc: BaseException) -> str:
    """Return the file and line that raised it, if possible outside of this package."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{_shown(exc.filename)}, line {exc.lineno}"
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__)
              if not frame.filename.startswith(("<frozen", _OWN_FOLDER))
              and not frame.filename.endswith("importlib/__init__.py")]
    if not frames:
        return "in the library"
    return f"{_shown(frames[-1].filename)}, line {frames[-1].lineno}"


def _shown(path: str) -> str:
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if relative.startswith("..") else relative


def _hint(name: str) -> str:
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        return f": give the module, {module}, not the file"
    return f" (looked for from {os.getcwd()})"


def _function_hint(name: str) -> str:
    module, _, function = name.rpartition(".")
    if not callable(getattr(sys.modules.get(module), function, None)):
        return ""
    return f": {function} is a function; give --topic and --channel with {module}:{function}"


def submodules_of(names: Iterable[str]) -> list[str]:
    return [
        f"{name}.{found.name}" for name in names
        for found in pkgutil.iter_modules(getattr(sys.modules.get(name), "__path__", ()))]
