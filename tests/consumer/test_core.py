"""Callbacks are called with their arguments, and harmless when they fail."""

from __future__ import annotations

import pytest

from nsqclient import Consumer
from nsqclient.errors import ConfigError
from nsqclient.runtime.threads import LibraryThread


@pytest.mark.parametrize("failure", [RuntimeError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_that_fails_is_logged(failure, caplog):
    """Whatever it raises, the library's thread goes on."""
    def fail(error):
        raise failure

    thread = LibraryThread(on_error_of(fail), "nsq-x", (1,))
    thread.launch()
    thread.join()
    assert "on_error failed" in caplog.text


@pytest.mark.parametrize("failure", [SystemExit(1), KeyboardInterrupt()])
def test_an_interrupt_in_a_callback_reaches_the_thread_that_called(failure, caplog):
    """On a thread of the user's, as in ``message.requeue()``; an Exception is logged there too."""
    def fail(error):
        raise error

    on_error = on_error_of(fail)
    with pytest.raises(type(failure)):
        on_error(failure)
    on_error(RuntimeError("x"))
    assert caplog.text.count("on_error failed") == 1


async def coroutine(*arguments):
    """Runs only where it is awaited."""


def generator(*arguments):
    """Runs only where it is iterated over."""
    yield arguments


def test_a_callback_that_returns_work_to_be_done_is_logged(caplog):
    """As a failure: nothing was done."""
    on_error_of(lambda error: coroutine(error))(1)
    assert "on_error failed" in caplog.text and "do the work before returning" in caplog.text


def on_error_of(function):
    """What a consumer reports an error to, with this callback."""
    return make_consumer(on_error=function)._core.on_error


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
