"""``Callbacks``: what the user wants to be told, and what happens when that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nsqclient.runtime.prefixed_logger import PrefixedLogger
from nsqclient.runtime.threads import is_for_caller
from nsqclient.runtime.user_functions import check_function, check_result

#: What each function of the user's is called with.
_PARAMETERS = {
    "handler": ["message"],
    "on_giving_up": ["message"],
    "on_blocked": ["message", "error"],
    "on_error": ["error"],
    "on_connect": ["address"],
    "on_disconnect": ["address"],
    "on_backoff": ["phase", "seconds"],
    "discovery_filter": ["addresses"],
}


def check_callbacks(arguments: Mapping[str, Any]) -> None:
    """Check the functions among the arguments of a consumer.

    Raises:
        ConfigError: one cannot be called, or calling it would do nothing.
    """
    for name, parameters in _PARAMETERS.items():
        if arguments[name] is not None:
            returns_addresses = name == "discovery_filter"
            check_function(
                arguments[name], name, *parameters, may_be_class=returns_addresses,
                may_be_generator=returns_addresses,
            )


class Callbacks:
    """The user's functions by name. Threads: any."""

    def __init__(
        self, log: PrefixedLogger, **functions: Callable[..., Any] | None
    ) -> None:
        self._log = log
        self._functions = functions

    def tell(self, name: str, *arguments: object) -> None:
        """Call one, if it was given; log what it raises.

        On a thread of the user's a KeyboardInterrupt or the like goes on to the caller.
        """
        function = self._functions[name]
        if function is not None:
            try:
                check_result(function(*arguments))
            except BaseException as exc:  # a SystemExit would end a thread of ours
                if is_for_caller(exc):
                    raise
                self._log.exception("%s failed", name)
