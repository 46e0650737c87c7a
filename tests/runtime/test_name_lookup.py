"""Lookups of host names: late ones, many of them, and their results."""

import socket
import threading
from types import SimpleNamespace

import pytest

from nsqclient.runtime import name_lookup
from nsqclient.runtime.deadline import Deadline
from nsqclient.runtime.name_lookup import find_addresses
from tests.support.waiting import wait_until

WAIT = 10.0
FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 4150))]


@pytest.fixture
def names(monkeypatch):
    """The result of each name; lookups of other names hang until the end of the test."""
    results, release, started = {}, threading.Event(), []
    real = socket.getaddrinfo

    def look_up(host, *arguments):
        if arguments[-1] == socket.AI_NUMERICHOST:
            return real(host, *arguments)
        started.append(host)
        assert host in results or release.wait(WAIT)
        if isinstance(results.get(host), Exception):
            raise results[host]
        return results.get(host, FOUND)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield SimpleNamespace(results=results, release=release, started=started)
    release.set()
    for lookup in list(name_lookup._lookups.values()):
        lookup.join(WAIT)
    name_lookup._lookups.clear()


def test_the_result_or_the_error_is_that_of_the_system(names):
    names.results["good"] = FOUND
    names.results["bad"] = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert find_addresses("good", 4150, Deadline(WAIT)) == FOUND
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="not known"):
            find_addresses("bad", 4150, Deadline(WAIT))
    assert names.started == ["good", "bad", "bad"] and not name_lookup._lookups


def test_an_ip_address_needs_no_lookup(names):
    [(_, _, _, _, place)] = find_addresses("127.0.0.1", 4150, Deadline(0))
    assert place == ("127.0.0.1", 4150) and names.started == []


def test_a_late_result_is_for_the_next_call(names):
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="no result after 0.01 s"):
            find_addresses("slow", 4150, Deadline(0.01))
    names.release.set()
    assert find_addresses("slow", 4150, Deadline(WAIT)) == FOUND
    assert names.started == ["slow"]


def test_a_late_result_is_not_used_for_long(names, monkeypatch):
    with pytest.raises(socket.gaierror):
        find_addresses("slow", 4150, Deadline(0.01))
    names.release.set()
    wait_until(lambda: name_lookup._lookups["slow", 4150].result)
    monkeypatch.setattr(name_lookup, "_MAX_AGE", -1.0)
    find_addresses("slow", 4150, Deadline(WAIT))
    assert names.started == ["slow", "slow"]


def test_lookups_that_hang_have_a_limit(names, monkeypatch):
    monkeypatch.setattr(name_lookup, "_MOST_LOOKUPS", 2)
    for host in ("a", "b"):
        with pytest.raises(socket.gaierror):
            find_addresses(host, 4150, Deadline(0.01))
    with pytest.raises(socket.gaierror, match="2 lookups of other hosts"):
        find_addresses("c", 4150, Deadline(WAIT))
    names.release.set()
    assert find_addresses("a", 4150, Deadline(WAIT)) == FOUND
    assert find_addresses("c", 4150, Deadline(WAIT)) == FOUND
