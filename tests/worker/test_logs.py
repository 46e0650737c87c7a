"""The log of a worker: its own records, and the handlers' records."""

import array
import io
import json
import logging

import pytest

from nsqclient.log_records import JsonFormatter
from nsqclient.worker import runner as module
from nsqclient.worker.runner import WorkerLog
from tests.support.processes import LIMIT
from tests.worker.conftest import save

USERS = logging.getLogger("shop.mail")


@pytest.fixture
def logged(monkeypatch):
    def run(configure, level=None, as_json=False, process=""):
        stream = io.StringIO()
        monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's
        monkeypatch.setattr(module.sys, "stderr", stream)
        with WorkerLog(level, as_json, process) as log:
            configure()
            log.on_imported()
            for logger in (USERS, logging.getLogger("nsqclient.consumer")):
                logger.info("handled %d", 7)
                logger.debug("details")
        assert module._OURS.handlers == []
        return stream.getvalue().splitlines()

    former = logging.getLogger().level
    yield run
    logging.getLogger().setLevel(former)
    USERS.handlers.clear()
    USERS.setLevel(logging.NOTSET)


def configured(*loggers):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())

    def configure():
        for logger in loggers:
            logger.setLevel(logging.DEBUG)
            logger.addHandler(handler)

    return configure, lines


def test_the_lines_of_the_program_look_like_those_of_the_worker(logged):
    lines = logged(lambda: None, process="process 2")
    assert [line.split(" ", 2)[2] for line in lines] == ["INFO [process 2] handled 7"] * 2
    assert len(logged(lambda: None, logging.DEBUG)) == 4


def test_a_program_that_has_configured_logging_logs_itself(logged):
    configure, theirs = configured(logging.getLogger())
    assert logged(configure) == [] and theirs == ["handled 7", "details"] * 2


def test_a_logger_with_a_handler_of_its_own_is_not_shown_twice(logged):
    configure, theirs = configured(USERS)
    assert len(logged(configure)) == 1 and theirs == ["handled 7", "details"]


def test_a_level_of_the_command_line_counts_for_the_library(logged):
    configure, theirs = configured(logging.getLogger())
    logged(configure, logging.WARNING)
    assert theirs == ["handled 7", "details"]


def test_json_is_an_object_for_each_record(logged):
    lines = logged(lambda: USERS.addFilter(add_order), as_json=True, process="process 2")
    USERS.filters.clear()
    first, second = map(json.loads, lines)
    assert first.items() >= {
        "level": "INFO", "logger": "shop.mail", "message": "handled 7", "order": 7,
        "process": "process 2"}.items()
    assert first["time"].endswith("+00:00")
    assert "order" not in second and "attempts" not in second


CYCLE: list = []
CYCLE.append(CYCLE)


def add_order(record):
    record.order = 7
    return True


def test_json_has_the_traceback():
    try:
        raise ValueError("no total")
    except ValueError as exc:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), (
            ValueError, exc, exc.__traceback__))
    line = JsonFormatter().format(record)
    assert "\n" not in line and json.loads(line)["exception"].endswith("ValueError: no total")


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(("value", "shown"), [
    (array.array("b", [1]), "array('b', [1])"), ({(1, 2): 3}, "{(1, 2): 3}"), ([...], ["Ellipsis"]),
    (Hostile(), "<Hostile: RuntimeError in its text>"), (float("nan"), "nan"), (b"x", "b'x'"),
    ([], []), (0, 0), ({"a": [1]}, {"a": [1]}),
], ids=range(9))
def test_json_loses_no_record_for_its_extra(value, shown):
    record = logging.makeLogRecord({"name": "x", "msg": "m", "levelname": "INFO", "extra": value})
    found = json.loads(JsonFormatter().format(record))
    assert (found["extra"], found["message"], found["level"]) == (shown, "m", "INFO")


@pytest.mark.parametrize("value", [10 ** 5000, CYCLE], ids=["huge", "cycle"])
def test_json_loses_no_record_for_a_value_without_end(value):
    record = logging.makeLogRecord({"name": "x", "msg": "m", "levelname": "INFO", "extra": value})
    assert json.loads(JsonFormatter().format(record), parse_int=str)["message"] == "m"


def test_an_extra_replaces_no_field_of_json():
    record = logging.makeLogRecord({
        "name": "x", "msg": "m", "levelname": "INFO", "level": "mine", "time": 5,
        "stack_info": "Stack (most recent call last):"})
    found = json.loads(JsonFormatter().format(record))
    assert (found["level"], found["level_"], found["time_"]) == ("INFO", "mine", 5)
    assert found["stack"] == "Stack (most recent call last):" and found["time"] != 5


LOGGING = """
import logging
import nsqclient

logging.basicConfig(level=logging.INFO, format="%(processName)s|%(message)s")

@nsqclient.handler("orders", "billing")
def bill(message):
    logging.getLogger("shop").info("billing %s", message.body.decode())
    raise nsqclient.GiveUp("no customer")
"""


def test_a_line_of_a_handler_comes_once_and_names_the_process(worker, project, nsqd):
    save(project, code=LOGGING)
    running = worker("shop", "--processes=1")
    nsqd.publish("orders", b"a")
    running.wait_for("giving up")
    assert running.log.count("billing a") == 1 and "process 1|billing a" in running.log
    assert running.log.count("giving up <Message") == 1
    assert "orders/billing: giving up" in running.log


@pytest.mark.parametrize("words", [["shop"], ["shop", "--processes=1"], ["nothing"],
                                   ["shop", "--health-address=127.0.0.1:0"]], ids=range(4))
def test_every_line_of_a_worker_with_json_parses(worker, nsqd, words):
    running = worker(*words, "--log-format=json")
    if words != ["nothing"]:
        running.wait_for("consuming from")
        running.end()
    assert running.process.wait(LIMIT) == (2 if words == ["nothing"] else 0)
    messages = [json.loads(line)["message"] for line in running.log.splitlines()]
    assert any(text.startswith(("consuming orders on channel", "worker: there is no module"))
               for text in messages)
