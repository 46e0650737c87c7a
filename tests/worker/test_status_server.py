"""Probes: readiness, liveness, and a server that outlives bad clients."""

import json
import re

import pytest
import requests

from nsqclient import ConfigError
from nsqclient.worker.status_server import (
    STALE, ProcessState, Response, live_response, ready_response, serve_status,
)

GOOD = ProcessState({"orders/billing": (True, "connected to 1 nsqd")})
BAD = ProcessState({"orders/billing": (True, "connected to 1 nsqd"),
                    "orders/mail": (False, "not connected to any nsqd")})


@pytest.mark.parametrize(("states", "wanted", "status", "words"), [
    ({"1": GOOD}, 1, 200, "connected to 1 nsqd"),
    ({"1": GOOD, "2": GOOD}, 2, 200, "connected to 1 nsqd"),
    ({"1": GOOD}, 2, 503, "1 of 2 processes run"),
    ({"1": GOOD, "2": BAD}, 2, 503, "not connected to any nsqd"),
    ({"1": ProcessState({})}, 1, 503, "starting"),
    ({"1": GOOD._replace(age=STALE + 2)}, 1, 503, "it has not reported for 7 s"),
    ({}, 1, 503, "0 of 1 processes run"),
])
def test_a_worker_is_ready_when_all_its_consumers_are_healthy(states, wanted, status, words):
    response = ready_response(states, wanted)
    assert response.status == status and words in response.body.decode()
    assert json.loads(response.body)["ready"] is (status == 200)


def test_a_process_that_works_is_live():
    assert (live_response().status, live_response(False).status) == (200, 503)


@pytest.fixture
def url():
    with serve_status("127.0.0.1:0", "", {
        "/good": lambda: Response(200, "text/plain", b"good"), "/bad": lambda: 1 / 0,
    }) as [line]:
        yield re.fullmatch(r"answering /good and /bad on (http://127\.0\.0\.1:\d+)", line)[1]


def test_paths_are_answered_and_others_are_not(url, caplog):
    """A failure of ours is 500 without a traceback in the answer."""
    assert requests.get(f"{url}/good?x=1", timeout=10).text == "good"
    unknown = requests.get(f"{url}/", timeout=10)
    assert unknown.status_code == 404
    assert unknown.json() == {"error": "unknown path: use one of /bad, /good"}
    assert requests.post(f"{url}/good", data=b"x", timeout=10).status_code == 501
    failed = requests.get(f"{url}/bad", timeout=10)
    assert failed.status_code == 500 and failed.json() == {"error": "ZeroDivisionError"}
    assert "could not be collected" in caplog.text


def test_one_address_answers_probes_and_scrapes():
    answer = Response(200, "text/plain", b"x")
    for health, metrics, paths in (
        ("127.0.0.1:0", "127.0.0.1:0", ["/live and /metrics"]),
        ("127.0.0.1:0", "localhost:0", ["/live", "/metrics"]), ("", "localhost:0", ["/metrics"]),
        ("", "", []),
    ):
        with serve_status(health, metrics, {"/live": lambda: answer}, lambda: answer) as lines:
            assert [line.split(" on ")[0] for line in lines] == [
                f"answering {each}" for each in paths]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999", "a b:1", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigError, match="--health-address"), serve_status(address, ""):
        pass


def test_a_port_in_use_is_refused(url):
    taken = url.removeprefix("http://")
    with pytest.raises(ConfigError, match="choose another port"):
        with serve_status("", taken, scrape=live_response):
            pass
