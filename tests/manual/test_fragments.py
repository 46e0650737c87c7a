"""Pieces of programs on the pages run in what their reader has around them."""

import inspect
import io
import logging
import re
from typing import Any

import pytest

from nsqclient import Config, Consumer
from nsqclient.consumer.context import consumer_log
from nsqclient.devserver import Nsqd
from nsqclient.log_records import log_fields
from nsqclient.testing import Published
from tests.manual.conftest import Cluster
from tests.support.docs.pages import Block, named, text_of
from tests.support.docs.terminal import Terminal


def run(nsqd: Nsqd, text: str, **names: Any) -> dict[str, Any]:
    scope = dict(names)
    exec(compile(text.replace("127.0.0.1:4150", nsqd.tcp_address), "the page", "exec"), scope)
    return scope


@pytest.mark.parametrize("block", named("a consumer with run()"), ids=lambda block: block.page)
def test_the_consumer_of_a_page_runs_until_a_signal(
    terminal: Terminal, cluster: Cluster, block: Block
) -> None:
    (terminal.folder / "page.py").write_text(terminal.here(block.text))
    cluster.nsqd.publish("events", b"hello")
    running = terminal.start("python -u page.py")
    running.wait_for("b'hello'")
    cluster.nsqd.wait_until_empty("events", "printer")
    assert running.interrupt() == 0


def test_the_misplaced_options_of_the_page_are_refused_in_these_words() -> None:
    calls = re.findall(r">>> (.+)\nTypeError: (.+)", text_of(named("options misplaced")))
    assert len(calls) == 2
    for call, said in calls:
        with pytest.raises(TypeError) as caught:
            eval(call, {"Consumer": Consumer, "Config": Config, "handler": print})
        assert str(caught.value) == said


def test_the_format_of_the_page_has_the_fields_of_records() -> None:
    logger = logging.getLogger("nsqclient")
    before = list(logger.handlers)
    exec(compile(text_of(named("log fields")), "the page", "exec"), {})
    (handler,) = [each for each in logger.handlers if each not in before]
    try:
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream := io.StringIO())
        consumer_log("orders", "mail").error("x", extra=log_fields(nsqd="a:1"))
        logging.getLogger("nsqclient.timer").error("y")
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue().splitlines() == [
        "ERROR topic=orders nsqd=a:1 id= orders/mail: x", "ERROR topic= nsqd= id= y"]


def test_the_module_level_producer_of_the_page_publishes(nsqd: Nsqd) -> None:
    scope = run(nsqd, text_of(named("module-level producer")))

    class Request:
        body = b"ada"

    scope["view"](Request)
    assert scope["producer"].close(5)
    assert [m.body for m in nsqd.messages("signups")] == [b"ada"]


@pytest.mark.parametrize("block, name", [
    (named("pytest fixture"), "test_orders_are_published"),
    (named("test of a publisher"), "test_signup_is_announced"),
    (named("test of a handler"), "test_signups_are_mailed"),
    (named("what the client sent"), "test_one_publish_is_one_command"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_test_of_a_page_passes(nsqd: Nsqd, block: list[Block], name: str) -> None:
    test = run(nsqd, text_of(block))[name]
    fixtures = {"nsqd": nsqd, "published": Published(nsqd)}
    test(**{each: fixtures[each] for each in inspect.signature(test).parameters})


@pytest.mark.parametrize("hangs, status", [(False, 0), (True, 1)])
def test_the_service_of_the_page_ends_with_its_exit_status(
    terminal: Terminal, cluster: Cluster, hangs: bool, status: int
) -> None:
    program = text_of(named("exit status of a service"))
    if hangs:
        program = program.replace(
            "print(message.body)", "print(message.body); __import__('threading').Event().wait()")
    (terminal.folder / "service.py").write_text(
        terminal.here(program.replace("stop_timeout=8", "stop_timeout=0.2")))
    cluster.nsqd.publish("orders", b"began")
    service = terminal.start("python -u service.py")
    service.wait_for("began")
    if not hangs:
        cluster.nsqd.wait_until_empty("orders", "billing")
    assert service.interrupt() == status


@pytest.mark.long
def test_the_tests_of_a_handler_on_the_page_pass(empty_terminal: Terminal) -> None:
    for block in (named("handler under test"), named("tests of a handler without a server"),
                  named("tests of a handler with a server")):
        head, text = text_of(block).split("\n", 1)
        (empty_terminal.folder / head.removeprefix("# ")).write_text(text)
    assert "4 passed" in empty_terminal.run("python -m pytest -q -p no:cacheprovider")
