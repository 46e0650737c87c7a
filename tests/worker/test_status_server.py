"""Probes: what is ready, what is live, and a server that outlives bad clients."""

from __future__ import annotations

import json
import socket
import threading

import pytest
import requests

from nsqclient import ConfigError
from nsqclient.worker.status_server import (
    STALE, ProcessState, Response, StatusServer, live_response, ready_response,
)

GOOD = ProcessState({"orders/billing": (True, "connected to 1 nsqd")})
BAD = ProcessState({"orders/billing": (True, "connected to 1 nsqd"),
                    "orders/mail": (False, "connected to no nsqd")})


@pytest.mark.parametrize(("states", "wanted", "status", "words"), [
    ({"1": GOOD}, 1, 200, "connected to 1 nsqd"),
    ({"1": GOOD, "2": GOOD}, 2, 200, "connected to 1 nsqd"),
    ({"1": GOOD}, 2, 503, "1 of 2 processes run"),
    ({"1": GOOD, "2": BAD}, 2, 503, "connected to no nsqd"),
    ({"1": ProcessState({})}, 1, 503, "starting"),
    ({"1": GOOD._replace(age=STALE + 2)}, 1, 503, "it has not reported for 7 s"),
    ({}, 1, 503, "0 of 1 processes run"),
])
def test_a_worker_is_ready_when_all_its_consumers_are_healthy(states, wanted, status, words):
    """The answer has the reason for each consumer of each process."""
    response = ready_response(states, wanted)
    assert response.status == status and words in response.body.decode()
    assert json.loads(response.body)["ready"] is (status == 200)


def test_a_process_that_works_is_live():
    """Else the status is 503."""
    assert (live_response().status, live_response(False).status) == (200, 503)


@pytest.fixture
def server():
    """A server with a good path, and a path that fails."""
    found = StatusServer("127.0.0.1:0", "--health-address", {
        "/good": lambda: Response(200, "text/plain", b"good"), "/bad": lambda: 1 / 0})
    found.start()
    yield found
    found.close()
    found.close()


def test_paths_are_answered_and_others_are_not(server, caplog):
    """A failure of ours is 500 without a traceback in the answer."""
    url = f"http://{server.address}"
    assert requests.get(f"{url}/good?x=1", timeout=10).text == "good"
    assert requests.get(f"{url}/", timeout=10).status_code == 404
    assert requests.post(f"{url}/good", data=b"x", timeout=10).status_code == 501
    failed = requests.get(f"{url}/bad", timeout=10)
    assert failed.status_code == 500 and failed.json() == {"error": "ZeroDivisionError"}
    assert "could not be collected" in caplog.text


def test_a_client_that_goes_away_harms_nobody(server):
    """Garbage and half a request are no error of the server's."""
    host, _, port = server.address.rpartition(":")
    for data in (b"", b"GET /go", b"\xff\xfe\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(data)
    assert requests.get(f"http://{server.address}/good", timeout=10).text == "good"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999", "a b:1", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(address):
    """The error names the flag."""
    with pytest.raises(ConfigError, match="--health-address"):
        StatusServer(address, "--health-address", {})


def test_a_port_in_use_is_refused(server):
    """The error says what to do."""
    with pytest.raises(ConfigError, match="choose another port"):
        StatusServer(server.address, "--metrics-address", {})


def test_a_request_without_a_thread_gets_500(server, monkeypatch, caplog):
    """Where none can be started; the next one is answered."""
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        failed = requests.get(f"http://{server.address}/good", timeout=10)
    assert (failed.status_code, failed.json()) == (500, {"error": "no thread can be started"})
    assert "status server: request from 127.0.0.1 failed: can't start new thread" in caplog.text
    assert requests.get(f"http://{server.address}/good", timeout=10).text == "good"
