"""What a worker logs: its own records, and those of the handlers."""

import io
import json
import logging

import pytest

from nsqclient.log_records import JsonFormatter
from nsqclient.worker import runner as module
from nsqclient.worker.runner import WorkerLog
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
    """All that comes, once: a handler and a level of its own."""
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
    """With the fields of the library, and every ``extra`` of the program."""
    lines = logged(lambda: USERS.addFilter(add_order), as_json=True, process="process 2")
    USERS.filters.clear()
    first, second = map(json.loads, lines)
    assert first.items() >= {
        "level": "INFO", "logger": "shop.mail", "message": "handled 7", "order": 7,
        "process": "process 2"}.items()
    assert first["time"].endswith("+00:00")
    assert "order" not in second and "attempts" not in second


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
    """As does the line of a message that is given up, with its topic and channel."""
    save(project, code=LOGGING)
    running = worker("shop", "--processes=1")
    nsqd.publish("orders", b"a")
    running.wait_for("giving up")
    assert running.log.count("billing a") == 1 and "process 1|billing a" in running.log
    assert running.log.count("giving up <Message") == 1
    assert "orders/billing: giving up" in running.log
