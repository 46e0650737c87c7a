"""The types of the options for type checkers, compared with the table."""

from __future__ import annotations

import inspect

from nsqclient import Consumer
from nsqclient.config import OPTIONS
from nsqclient.option_types import ConfigOptions, SharedOptions
from nsqclient.worker.registry import HandlerOptions

#: Kind of an option -> its type where it is given.
TYPES = {
    "duration": "Duration", "int": "int", "float": "float", "bool": "bool", "str": "str",
    "strategy": "Union[str, BackoffStrategy]", "context": "Union[ssl.SSLContext, None]",
}


def types_of(cls):
    return {name: each.__forward_arg__ for name, each in cls.__annotations__.items()}


def test_every_option_has_its_type():
    """Those of the table, each once, in its order but for max_in_flight."""
    expected = {name: TYPES[option.kind] for name, option in OPTIONS.items()}
    assert types_of(ConfigOptions) == expected


def test_a_handler_takes_arguments_of_a_consumer():
    parameters = inspect.signature(Consumer).parameters
    own = types_of(HandlerOptions).keys() - types_of(SharedOptions).keys()
    for name in own:
        assert types_of(HandlerOptions)[name] == parameters[name].annotation, name
