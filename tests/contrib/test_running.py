"""Handlers named on a command line, what stands around them, and groups of consumers."""

from __future__ import annotations

import contextlib
import threading

import pytest

from nsqclient import BatchHandler, ConfigError
from nsqclient.contrib.running import ConsumerGroup, load_handler, within
from nsqclient.contrib.settings import Settings
from tests.support.waiting import wait_until


def handle(message):
    """A handler that can be named."""


async def handle_async(message):
    """A handler that cannot run in a thread."""


def handle_two(message, database):
    """A handler that wants more than a message."""


def generate(message):
    """A handler that runs only where it is iterated over."""
    yield message


batches = BatchHandler(print)


class Handler:
    """A class whose objects would be handlers."""


@pytest.mark.parametrize("path", [f"{__name__}.handle", f"{__name__}:handle"])
def test_a_handler_is_loaded_by_its_path(path):
    """Both ways to write a path are understood."""
    assert load_handler(path).__name__ == "handle"


@pytest.mark.parametrize(("path", "words"), [
    ("handle", "give a dotted path"),
    ("no_such_package.tasks.handle", "there is no module 'no_such_package'"),
    ("tests.contrib.no_such_module.handle", "there is no module"),
    (f"{__name__}.handel", "has no 'handel'"),
    (f"{__name__}.pytestmark_is_missing", "has no"),
    (f"{__name__}.__name__", "not callable"),
    (f"{__name__}.handle_async", "write def, not async def"),
    (f"{__name__}.Handler", "is a class"),
    (f"{__name__}.generate", "without yield"),
    (f"{__name__}.handle_two", r"cannot be called with \(message\)"),
])
def test_a_path_that_names_no_handler_is_refused(path, words):
    """The error says what is wrong with it."""
    with pytest.raises(ConfigError, match=words):
        load_handler(path)


def test_an_import_error_inside_the_module_is_not_hidden(tmp_path, monkeypatch):
    """A module that fails to import something else says so itself."""
    (tmp_path / "broken_tasks.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_handler("broken_tasks.handle")


def test_a_batch_handler_is_a_handler():
    """It is an object that can be called."""
    assert load_handler(f"{__name__}.batches") is batches


def test_what_stands_around_a_handler_does_not_hide_it():
    """An asynchronous one is refused all the same."""
    with pytest.raises(ConfigError, match="async"):
        within(handle_async, contextlib.nullcontext)


@pytest.fixture
def settings(nsqd):
    """Settings for the running nsqd."""
    return Settings.read({"NSQD_TCP_ADDRESSES": [nsqd.tcp_address]})


@pytest.mark.parametrize("batched", [False, True])
def test_each_message_is_handled_inside_of_what_stands_around(nsqd, settings, batched):
    """The block is entered and left for each message, or for each batch, of every topic."""
    entered, inside, seen = [], threading.local(), []

    @contextlib.contextmanager
    def around():
        entered.append(1)
        inside.value = True
        yield
        inside.value = False

    def handler(what):
        assert inside.value
        seen.extend(message.body for message in (what if batched else [what]))

    chosen = BatchHandler(handler, size=1) if batched else handler
    group = ConsumerGroup(settings)
    group.add(["orders", "refunds"], "c", within(chosen, around), workers=2)
    for topic in ("orders", "refunds"):
        nsqd.publish_many(topic, [topic.encode()] * 3)
    group.start()
    wait_until(lambda: len(seen) == 6)
    assert all(group.stop(5)) and sorted(set(seen)) == [b"orders", b"refunds"]
    assert len(entered) == 6


def test_a_consumer_has_enough_in_flight_for_its_workers(settings):
    """Workers without messages would be idle for no reason."""
    group = ConsumerGroup(settings)
    group.add(["orders"], "c", handle, workers=5)
    group.add(["orders"], "d", handle, workers=5, max_in_flight=2)
    assert [consumer.max_in_flight for consumer in group.consumers] == [5, 2]


def test_where_no_thread_can_be_started_the_group_stops_in_the_caller(nsqd, settings, monkeypatch):
    """One consumer after the other; every report is complete, and a second stop returns it."""
    def refuse(self):
        raise RuntimeError("can't start new thread")

    seen = []
    group = ConsumerGroup(settings)
    group.add(["orders", "refunds"], "c", lambda message: seen.append(message.body))
    nsqd.publish_many("orders", [b"x"] * 3)
    group.start()
    wait_until(lambda: len(seen) == 3)
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        reports = group.stop(5)
    assert len(reports) == 2 and all(reports) and all(report.complete for report in reports)
    assert [consumer.stop(1).complete for consumer in group.consumers] == [True, True]
