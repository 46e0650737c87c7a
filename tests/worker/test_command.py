"""``nsqclient worker`` as a process of its own: what it runs, says, answers, and how it ends."""

import os
import signal

import pytest
import requests

from tests.support.processes import LIMIT
from tests.support.waiting import wait_until
from tests.worker.conftest import HANDLERS, save


def states(nsqd) -> list[str]:
    return [message.state for message in nsqd.messages("orders", "billing")]


def test_a_signal_lets_running_handlers_finish(worker, nsqd):
    nsqd.publish_many("orders", [b"1"] * 4)
    running = worker("shop")
    wait_until(lambda: len(running.handled("began")) == 2, LIMIT)
    assert running.end() == 0
    assert len(running.handled()) == 2 and states(nsqd) == ["queued"] * 2


def test_what_does_not_end_in_time_is_abandoned(worker, nsqd):
    nsqd.publish("orders", b"60")
    running = worker("shop", "--stop-timeout=200ms")
    wait_until(lambda: running.handled("began"), LIMIT)
    assert running.end() == 1
    assert "a longer --stop-timeout lets them finish" in running.log
    assert states(nsqd) == ["in_flight"]


def test_a_stop_while_nsqd_is_gone_says_what_is_delivered_again(worker, nsqd):
    nsqd.publish("orders", b"1")
    running = worker("shop")
    wait_until(lambda: running.handled("began"), LIMIT)
    nsqd.kill()
    assert running.end() == 1 and running.handled() == ["1"]
    assert "1 message had no response at the stop: nsqd delivers them again" in running.log


def test_a_second_signal_ends_it_at_once(worker, nsqd):
    nsqd.publish("orders", b"60")
    running = worker("shop")
    wait_until(lambda: running.handled("began"), LIMIT)
    running.process.send_signal(signal.SIGINT)
    running.wait_for("stopping: received a signal")
    assert running.end(signal.SIGINT) == 130


def test_one_function_is_named_with_its_channel(worker, nsqd, project):
    save(project, code=HANDLERS + """
import contextlib
def plain(message):
    note("plain", message.body.decode(), 0)

@contextlib.contextmanager
def around(handling):
    note("around", handling.topic, 0)
    yield
""")
    nsqd.publish("mails", b"x")
    running = worker("shop:plain", "--topic=mails", "--channel=c", "--workers=3",
                     "--middleware=shop:around")
    nsqd.wait_until_empty("mails", "c", timeout=LIMIT)
    assert running.end() == 0 and running.handled("plain") == ["x"]
    assert running.handled("around") == ["mails"]
    assert "consuming mails on channel c with shop.plain: 3 workers" in running.log


def test_a_decorated_function_has_its_own_topic_and_channel(worker, nsqd):
    nsqd.publish("orders", b"x")
    running = worker("shop:bill")
    nsqd.wait_until_empty("orders", "billing", timeout=LIMIT)
    assert running.end() == 0 and running.handled() == ["x"]


@pytest.mark.parametrize("flag", [
    "--processes=0", "--health-address=8080", "--metrics-address=*:8080"])
@pytest.mark.parametrize("check", [[], ["--check"]], ids=["start", "check"])
def test_an_odd_value_is_refused_by_a_check_as_by_the_start(worker, flag, check):
    running = worker("shop", flag, *check)
    assert running.process.wait(LIMIT) == 2 and flag.partition("=")[0] in running.log


@pytest.mark.parametrize(("words", "code", "status", "said"), [
    (["shop"], "import no_such_package\n", 1,
     "shop cannot be imported: ModuleNotFoundError: No module named 'no_such_package' (shop.py,"
     " line 1)"),
    (["shop"], "x = 1\n", 1, "shop: no handler is registered; write @nsqclient.handler"),
    (["shop:bill", "--topic=orders", "--channel=billing", "--workers=9"], HANDLERS, 1,
     "shop.bill is registered for orders/billing with workers 2, and --workers says 9"),
    (["shop:bill", "--topic=orders", "--channel=c", "--consumer-opt=heartbeat_interval,-1"],
     HANDLERS, 1, "a consumer needs heartbeats"),
    (["shpo"], HANDLERS, 2, "there is no module 'shpo'"),
    (["shop", "--topic=refunds"], HANDLERS, 2, "no handler is registered for refunds"),
    (["shop", "--processes=2000"], HANDLERS, 2, "--processes must be from 1 to 1024, not 2000"),
    (["shop:note"], HANDLERS, 2,
     "give both --topic and --channel: shop:note has no @nsqclient.handler"),
    (["shop:bill", "--topic=x"], HANDLERS, 2,
     "give both --topic and --channel: shop:bill has no @nsqclient.handler for that topic"),
    (["shop:bill", "--channel=c"], HANDLERS, 2, "give both --topic and --channel"),
])
def test_what_cannot_start_is_one_line_and_a_status(worker, project, words, code, status, said):
    save(project, code=code)
    running = worker(*words)
    assert running.process.wait(LIMIT) == status
    [line] = running.log.splitlines()
    assert said in line


@pytest.mark.parametrize("processes", [0, 2])
def test_probes_and_metrics_are_answered(worker, nsqd, processes):
    nsqd.publish_many("orders", [b"a"] * 10)
    running = worker("shop", *[f"--processes={processes}"] * bool(processes),
                     "--health-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0")
    ready, metrics = running.url("/ready"), running.url("/metrics")
    wait_until(lambda: requests.get(ready, timeout=10).status_code == 200, LIMIT)
    assert requests.get(running.url("/live"), timeout=10).json() == {"live": True}
    names = [str(number) for number in range(1, max(processes, 1) + 1)]
    assert requests.get(ready, timeout=10).json() == {"ready": True, "processes": {
        name: {"orders/billing": "connected to 1 nsqd"} for name in names}}

    def finished() -> float:
        lines = requests.get(metrics, timeout=10).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines
                   if line.startswith("nsq_consumer_finished_total{"))

    wait_until(lambda: finished() == 10, LIMIT)
    expected = [f'nsq_consumer_healthy{{channel="billing",process="{name}",topic="orders"}} 1.0'
                for name in names]
    expected.append("nsq_consumer_handler_seconds_bucket")
    # Each process reports now and then; on a busy machine one of them may be late.
    wait_until(lambda: (text := requests.get(metrics, timeout=10).text) and all(
        line in text for line in expected), LIMIT)
    assert requests.get(ready.replace("/ready", "/"), timeout=10).status_code == 404
    nsqd.kill()
    wait_until(lambda: requests.get(ready, timeout=10).status_code == 503, LIMIT)
    assert "not connected to any nsqd" in requests.get(ready, timeout=10).text


def test_with_reload_a_handler_that_is_taken_away_does_not_end_it(worker, nsqd, project):
    """The command line was right at the start, and may become so again."""
    running = worker("shop", "--topic=orders", "--reload")
    running.wait_for("Ctrl-C stops")
    save(project, code=HANDLERS.replace('"orders"', '"refunds"'))
    running.wait_for("ended with status 2: waiting for a change")
    save(project, "mended")
    nsqd.publish("orders", b"b")
    wait_until(lambda: running.handled("mended") == ["b"], LIMIT)
    assert running.end() == 0


def test_with_reload_a_wrong_command_line_ends_it_at_once(worker):
    """No change of the code would help."""
    running = worker("shpo", "--reload")
    assert running.process.wait(LIMIT) == 2
    assert "there is no module 'shpo'" in running.log


@pytest.mark.parametrize("words", [[], ["--processes=2"]])
def test_with_reload_ctrl_c_in_a_terminal_is_one_signal(worker, nsqd, words):
    nsqd.publish("orders", b"1")
    running = worker("shop", "--reload", *words)
    wait_until(lambda: running.handled("began"), LIMIT)
    for pid in running.children():
        os.kill(pid, signal.SIGINT)
    assert running.end(signal.SIGINT) == 0 and running.handled() == ["1"]
