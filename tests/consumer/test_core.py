"""Callbacks get their arguments, and a callback that fails does no harm."""

import asyncio
import time

import pytest

from nsqclient import Consumer, partitioned
from nsqclient.errors import ConfigError, ConnectError
from nsqclient.runtime.threads import LibraryThread


@pytest.mark.parametrize("failure", [RuntimeError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_that_fails_is_logged(failure, caplog):
    def fail(error):
        raise failure

    thread = LibraryThread(on_error_of(fail), "nsq-x", (1,))
    thread.launch()
    thread.join()
    assert "on_error failed" in caplog.text


@pytest.mark.parametrize("failure", [SystemExit(1), KeyboardInterrupt()])
def test_an_interrupt_in_a_callback_reaches_the_thread_that_called(failure, caplog):
    """The user's thread called, as in ``message.requeue()``. An Exception is still only logged."""
    def fail(error):
        raise error

    on_error = on_error_of(fail)
    with pytest.raises(type(failure)):
        on_error(failure)
    on_error(RuntimeError("x"))
    assert caplog.text.count("on_error failed") == 1


async def coroutine(*arguments):
    """Does nothing unless awaited."""


def generator(*arguments):
    """Does nothing unless iterated."""
    yield arguments


def test_a_callback_that_returns_work_to_be_done_is_logged(caplog):
    on_error_of(lambda error: coroutine(error))(1)
    assert "on_error failed" in caplog.text and "do the work before returning" in caplog.text


def on_error_of(function):
    return make_consumer(on_error=function)._core.on_error


def make_consumer(**options):
    if "retry" in options:
        options["handler"] = print
    if "on_blocked" in options:
        return partitioned.Consumer(
            "t", "c", lookupd_http_addresses=["127.0.0.1:1"], ordered=True, **options)
    return Consumer("t", "c", nsqd_tcp_addresses=["127.0.0.1:1"], **options)


FUNCTIONS = {
    "handler": 1, "on_giving_up": 1, "on_error": 1, "on_connect": 1, "on_disconnect": 1,
    "on_backoff": 2, "on_stop": 0, "on_blocked": 2, "retry": 2, "discovery_filter": 1,
}


@pytest.mark.parametrize("name, parameters", FUNCTIONS.items())
def test_a_function_is_checked_when_the_consumer_is_made(name, parameters):
    """Only ``discovery_filter`` may be a generator: the library iterates over its result."""
    make_consumer(**{name: [lambda: None, lambda one: None, lambda one, two: None][parameters]})
    refused = [coroutine, 3, (lambda: None) if parameters else (lambda one: None)]
    if name == "discovery_filter":
        make_consumer(discovery_filter=generator)
        make_consumer(discovery_filter=list)
    else:
        refused += [generator, list]
    for function in refused:
        with pytest.raises(ConfigError, match=f"^{name}"):
            make_consumer(**{name: function})


def test_a_loop_that_ends_before_the_first_dial_says_how_to_wait_longer():
    with pytest.raises(ConnectError, match="give messages\\(\\) a longer timeout"):
        make_consumer()._core.check_connected(time.monotonic())


def test_an_asynchronous_context_says_what_to_write():
    async def enter():
        async with Consumer("t", "c", print, nsqd_tcp_addresses=["127.0.0.1:1"]):
            pass

    with pytest.raises(TypeError, match="a Consumer is for threads: write with, not async with"):
        asyncio.run(enter())
