"""The pages on the worker and on middleware: their commands, files and programs."""

import configparser
import contextlib
import logging
import re
import shlex
import sys
import types

import pytest
import yaml

from nsqclient import Consumer, Producer, Requeue
from nsqclient.devserver import Nsqd
from nsqclient.message import MessageId
from nsqclient.worker.registry import registry
from tests.manual.conftest import Cluster
from tests.support.docs.flags import flags_of, unknown_flags
from tests.support.docs.pages import commands_of, named, read, text_of
from tests.support.docs.terminal import Terminal

PAGE = "docs/topics/worker.rst"


@pytest.fixture
def shop(terminal: Terminal, cluster: Cluster) -> Terminal:
    (terminal.folder / "shop").mkdir()
    (terminal.folder / "shop" / "__init__.py").write_text("")
    (terminal.folder / "shop" / "handlers.py").write_text(text_of(named("worker handlers")))
    for topic in ("orders", "refunds"):
        cluster.create_topic(topic)
        cluster.nsqd.create_channel(topic, "billing")
    cluster.nsqd.create_channel("orders", "archive")
    return terminal


def test_the_first_run_prints_what_the_page_shows(shop: Terminal, cluster: Cluster) -> None:
    [command] = commands_of(named("worker first run"))
    worker = shop.start(command)
    worker.wait_for("Ctrl-C stops")
    shown = shop.here(text_of(named("worker first run"))).splitlines()[1:]
    assert [line for line in worker.log.splitlines() if line in shown] == shown
    for publish in commands_of(named("worker first messages")):
        assert shop.start(publish).end() == 0
    said = re.search(r"The worker prints (.*)\.", read(PAGE))
    assert said is not None
    lines = re.findall(r"``([^`]+)``", said[1])
    assert len(lines) == 3
    for line in lines:
        worker.wait_for(line)
    assert worker.interrupt() == 0


def test_the_first_nsqd_is_at_the_address_of_the_page(empty_terminal: Terminal) -> None:
    [nsqd] = commands_of(named("worker nsqd"))
    empty_terminal.serve(nsqd)
    [command] = commands_of(named("worker first run"))
    assert empty_terminal.replace["127.0.0.1:4150"] in empty_terminal.here(command)


def test_the_check_prints_what_the_page_shows(shop: Terminal) -> None:
    [command] = commands_of(named("worker check"))
    checked = shop.start(command)
    assert checked.end() == 0, checked.log
    shown = shop.here(text_of(named("worker check"))).splitlines()[1:]
    assert [line for line in checked.log.splitlines() if line in shown] == shown


def test_the_other_commands_of_the_page_work(shop: Terminal, cluster: Cluster) -> None:
    function, check, reload = commands_of(named("worker commands"))
    shop.run(check)
    for command in (function, reload):
        running = shop.start(command)
        running.wait_for("Ctrl-C stops")
        assert running.interrupt() == 0


def test_the_unit_for_systemd_is_well_formed() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    unit.read_string(text_of(named("worker systemd unit")))
    service = unit["Service"]
    program, tool, _, *flags = shlex.split(service["ExecStart"])
    assert program.endswith("/nsqclient") and unknown_flags(flags, flags_of(tool)) == []
    [timeout] = [re.sub(r"\D", "", flag) for flag in flags if flag.startswith("--stop-timeout")]
    assert int(service["TimeoutStopSec"]) > int(timeout) + 5
    assert service["KillMode"] == "mixed" and "-HUP $MAINPID" in service["ExecReload"]


def test_the_deployment_for_kubernetes_is_well_formed() -> None:
    deployment = yaml.safe_load(text_of(named("worker Kubernetes Deployment")))
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"][:2] == ["nsqclient", "worker"]
    assert unknown_flags(container["args"], flags_of("worker")) == []
    port = container["ports"][0]["containerPort"]
    assert f"--health-address=:{port}" in container["args"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [probe["path"] for probe in probes] == ["/live", "/live", "/ready"]
    assert {probe["port"] for probe in probes} == {port}
    assert pod["terminationGracePeriodSeconds"] > 25  # the default of --stop-timeout


def test_the_flags_of_the_page_are_those_of_the_command() -> None:
    table = read(PAGE).partition("Flags\n-----")[2].partition("Signals and")[0]
    shown = set(re.findall(r"``--([\w-]+)", table))
    assert shown - flags_of("worker") == set()
    common = flags_of("nsq_tail") | {"check"}
    assert flags_of("worker") - common - shown - {"stop-timeout"} == set()


def consumed(program: str, nsqd: Nsqd, found: dict[str, object]) -> None:
    """Run a program of the page that makes ``consumer``; publish, and let it handle a message."""
    exec(compile(program.replace("127.0.0.1:4150", nsqd.tcp_address), "page", "exec"), found)
    consumer = found["consumer"]
    assert isinstance(consumer, Consumer)
    if not nsqd.stats("orders")["topics"]:
        nsqd.publish("orders", b"x")
    with consumer:
        nsqd.wait_until_empty("orders", "billing")


def test_the_program_with_opentelemetry_publishes_and_handles(
    nsqd: Nsqd, capsys: pytest.CaptureFixture[str]
) -> None:
    page: dict[str, object] = {}
    try:
        consumed(text_of(named("OpenTelemetry")), nsqd, page)
    finally:
        producer = page["producer"]
        assert isinstance(producer, Producer) and producer.close(5)
    assert capsys.readouterr().out == "billing 17\n"


def test_the_handler_with_limits_handles_a_message(
    nsqd: Nsqd, capsys: pytest.CaptureFixture[str]
) -> None:
    page: dict[str, object] = {}
    exec(compile(text_of(named("handler limits")), "page", "exec"), page)
    try:
        [found] = [each for each in registry if each.place == "orders/mail"]
        nsqd.publish("orders", b"17")
        with Consumer(found.topic, found.channel, found.handler, middleware=found.middleware,
                      nsqd_tcp_addresses=[nsqd.tcp_address]):
            nsqd.wait_until_empty("orders", "mail")
    finally:
        registry.remove("orders", "mail")
    assert len(found.middleware) == 2 and capsys.readouterr().out == "mailing 17\n"


def test_the_program_with_log_context_logs_the_fields(
    nsqd: Nsqd, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("shop")
    try:
        consumed(text_of(named("log context")), nsqd, {})
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
    assert re.search(r"^orders/billing [0-9a-f]{16} billed$", capsys.readouterr().err, re.M)


def test_the_recipe_for_sentry_reports_errors_and_no_requeue(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception goes on to the consumer; a stand-in takes the place of Sentry's library."""
    captured: list[BaseException] = []
    tags: dict[str, object] = {}
    scope = types.SimpleNamespace(set_tag=tags.__setitem__, set_extra=tags.__setitem__)
    module = types.ModuleType("sentry_sdk")
    vars(module).update(
        new_scope=lambda: contextlib.nullcontext(scope), capture_exception=captured.append)
    monkeypatch.setitem(sys.modules, "sentry_sdk", module)
    found: dict[str, object] = {}
    exec(compile(text_of(named("Sentry recipe")), "page", "exec"), found)
    report_errors = found["report_errors"]
    assert callable(report_errors)
    message = types.SimpleNamespace(id=MessageId(b"0" * 16), attempts=2)
    handling = types.SimpleNamespace(topic="orders", channel="billing", messages=[message])
    for error in (ValueError("bad"), Requeue()):
        with pytest.raises(type(error)), report_errors(handling):
            raise error
    assert [type(error) for error in captured] == [ValueError]
    assert tags == {"nsq.topic": "orders", "nsq.channel": "billing", "message_id": "0" * 16,
                    "attempts": 2}
