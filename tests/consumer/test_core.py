"""Callbacks are called with their arguments, and harmless when they fail."""

from __future__ import annotations

import pytest

from nsqclient import Consumer
from nsqclient.consumer.backoff import Phase
from nsqclient.consumer.core import Callbacks
from nsqclient.consumer.lifecycle_log import LifecycleLogger
from nsqclient.errors import ConfigError
from nsqclient.runtime.threads import LibraryThread


@pytest.mark.parametrize("name, arguments, expected", [
    ("on_error", [1], (1,)), ("on_connect", ["nsqd:4150"], ("nsqd:4150",)),
    ("on_disconnect", ["nsqd:4150"], ("nsqd:4150",)),
    ("on_backoff", [Phase.WAITING, 1.5], ("waiting", 1.5)),
])
def test_a_callback_is_called_with_its_arguments(name, arguments, expected):
    """A callback that was not given is no error."""
    seen = []
    function = {name: lambda *arguments: seen.append(arguments)}
    getattr(Callbacks(LifecycleLogger("t", "c"), **function), name)(*arguments)
    getattr(Callbacks(LifecycleLogger("t", "c")), name)(*arguments)
    assert seen == [expected]


@pytest.mark.parametrize("failure", [RuntimeError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_that_fails_is_logged(failure, caplog):
    """Whatever it raises, the library's thread goes on."""
    def fail(error):
        raise failure

    callbacks = Callbacks(LifecycleLogger("t", "c"), on_error=fail)
    thread = LibraryThread(callbacks.on_error, "nsq-x", (1,))
    thread.launch()
    thread.join()
    assert "on_error failed" in caplog.text


@pytest.mark.parametrize("failure", [SystemExit(1), KeyboardInterrupt()])
def test_an_interrupt_in_a_callback_reaches_the_thread_that_called(failure, caplog):
    """On a thread of the user's, as in ``message.requeue()``; an Exception is logged there too."""
    def fail(error):
        raise error

    callbacks = Callbacks(LifecycleLogger("t", "c"), on_error=fail)
    with pytest.raises(type(failure)):
        callbacks.on_error(failure)
    callbacks.on_error(RuntimeError("x"))
    assert caplog.text.count("on_error failed") == 1


async def coroutine(*arguments):
    """Runs only where it is awaited."""


def generator(*arguments):
    """Runs only where it is iterated over."""
    yield arguments


def test_a_callback_that_returns_work_to_be_done_is_logged(caplog):
    """As a failure: nothing was done."""
    Callbacks(LifecycleLogger("t", "c"), on_error=lambda error: coroutine(error)).on_error(1)
    assert "on_error failed" in caplog.text and "do the work before returning" in caplog.text


def make_consumer(**options):
    """A consumer that is not started."""
    if "retry" in options:
        options["handler"] = print
    return Consumer("t", "c", **options, **(
        {"lookupd_http_addresses": ["127.0.0.1:1"], "ordered": True} if "on_blocked" in options
        else {"nsqd_tcp_addresses": ["127.0.0.1:1"]}
    ))


FUNCTIONS = {
    "handler": 1, "on_giving_up": 1, "on_error": 1, "on_connect": 1, "on_disconnect": 1,
    "on_backoff": 2, "on_blocked": 2, "retry": 2, "discovery_filter": 1,
}


@pytest.mark.parametrize("function", [coroutine, lambda: None, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_could_do_nothing_is_refused(name, function):
    """When the consumer is made, with the name of the argument."""
    with pytest.raises(ConfigError, match=f"^{name}"):
        make_consumer(**{name: function})


@pytest.mark.parametrize("function", [generator, list])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_a_discovery_filter_may_be_a_generator_or_a_class(name, function):
    """Its result is iterated over, the others' are not."""
    if name == "discovery_filter":
        make_consumer(discovery_filter=function)
    else:
        with pytest.raises(ConfigError, match=f"^{name}"):
            make_consumer(**{name: function})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_given_its_own_arguments(name):
    """A function that takes exactly these is accepted."""
    function = [None, lambda one: None, lambda one, two: None][FUNCTIONS[name]]
    make_consumer(**{name: function})
