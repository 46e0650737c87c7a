"""The registry: one handler for each channel, checked when it is registered."""

import contextlib
import functools

import pytest

import nsqclient
from nsqclient import BatchHandler, ConfigError, InvalidChannelError, InvalidTopicError
from nsqclient.worker.registry import HandlerRegistry, name_of, register, registry


def handle(message):
    """A handler that has a name."""


def test_the_decorator_registers_and_returns_the_function():
    own = HandlerRegistry()
    decorate = own.handler("orders", "billing", workers=8, max_in_flight=50, max_attempts=3,
                           middleware=[contextlib.nullcontext])
    assert decorate(handle) is handle
    [entry] = own
    assert (entry.topic, entry.channel, entry.workers, entry.max_in_flight) == (
        "orders", "billing", 8, 50)
    assert entry.options == {"max_attempts": 3} and entry.name == f"{__name__}.handle"
    assert entry.middleware == (contextlib.nullcontext,)


def test_the_front_door_registers_with_the_registry_of_the_process():
    nsqclient.handler("registry-test", "c")(handle)
    try:
        assert [entry.handler for entry in registry if entry.topic == "registry-test"] == [handle]
    finally:
        registry.remove("registry-test", "c")


def test_a_handler_may_serve_several_channels():
    own = HandlerRegistry()
    own.handler("a", "c")(own.handler("b", "c")(handle))
    own.handler("c", "c")(BatchHandler(handle))
    own.handler("d", "c")(functools.partial(handle))
    assert [entry.name for entry in own] == [f"{__name__}.handle"] * 4


@pytest.mark.parametrize(("names", "options", "function", "words"), [
    (("a b", "c"), {}, handle, "a b"),
    (("a", ""), {}, handle, "channel"),
    (("a", "c"), {"workers": 0}, handle, "workers must be"),
    (("a", "c"), {"max_in_flight": -1}, handle, "max_in_flight"),
    (("a", "c"), {"max_attemps": 3}, handle, "did you mean max_attempts"),
    (("a", "c"), {"order": True}, handle, "did you mean ordered"),
    (("a", "c"), {"msg_timeout": "x"}, handle, "msg_timeout"),
    (("a", "c"), {"middleware": [1]}, handle, "middleware"),
    (("a", "c"), {}, 1, "not callable"),
])
def test_an_invalid_handler_is_rejected_by_the_decorator(names, options, function, words):
    """The error is raised at import, not when the worker starts."""
    errors = (ConfigError, InvalidTopicError, InvalidChannelError)
    with pytest.raises(errors, match=words):
        HandlerRegistry().handler(*names, **options)(function)


def test_a_channel_with_two_handlers_is_refused():
    own = HandlerRegistry()
    own.handler("a", "c")(handle)
    with pytest.raises(ConfigError, match=f"a/c has two handlers, {__name__}.handle and builtins"):
        own.handler("a", "c")(print)
    assert len(list(own)) == 1


def test_an_object_without_a_name_is_shown_by_its_class():
    class Mailer:
        def __call__(self, message):
            """Sends a mail."""

    assert name_of(Mailer()).endswith("Mailer")
    assert register("a", "c", Mailer()).settings() == {"workers": 1}


@pytest.mark.parametrize("register", [lambda: HandlerRegistry().handler(print),
                                      lambda: HandlerRegistry().handler("orders")])
def test_a_decorator_without_a_channel_says_what_to_write(register):
    """As a bare ``@nsqclient.handler`` over a function."""
    with pytest.raises(ConfigError, match='write @nsqclient.handler."topic", "channel"'):
        register()
