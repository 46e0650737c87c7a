"""A hostile nsqd and a hostile nsqlookupd beside good ones change nothing for the good ones."""

import json
import logging
import re
from contextlib import ExitStack, contextmanager

import pytest

from nsqclient import Config, Consumer
from nsqclient.cli import main
from tests.support.browser.admin import Cluster, running_admin
from tests.support.faults.hostile import HostileNsqd, HostileNsqlookupd
from tests.support.servers.http_api import registered
from tests.support.waiting import wait_until

pytestmark = pytest.mark.parametrize("server_kind", ["embedded"])
TOPIC, CHANNEL = "events", "archive"


@pytest.fixture
def good(server_factory, lookupd_factory):
    """Two nsqds and two nsqlookupds, with a topic and messages on both nsqds."""
    lookups = [lookupd_factory(), lookupd_factory()]
    found = Cluster(lambda **options: server_factory(
        lookupd_tcp_addresses=[each.tcp_address for each in lookups]), lambda: lookups[0])
    found.lookupds = lookups
    found.fill(TOPIC, CHANNEL)
    wait_until(lambda: all(len(registered(each, TOPIC)) == 2 for each in lookups))
    yield found
    found.close()


def lookupds_of(good):
    return [each.http_address for each in good.lookupds]


@contextmanager
def hostile(good, kind):
    """The nsqlookupds to give to a tool, with a hostile one behind the good ones.

    ``kind`` says what it and its nsqd do beside sending nasty texts.
    """
    with ExitStack() as stack:
        nsqd = stack.enter_context(HostileNsqd(TOPIC, CHANNEL))
        lookupd = stack.enter_context(HostileNsqlookupd(TOPIC, [nsqd]))
        for address in good.addresses:
            # The good nsqds under other ports and names, and as an older version.
            host, port = address.split(":")
            tcp = next(int(each.tcp_address.split(":")[1]) for each in good.nsqds
                       if each.http_address == address)
            claim = {"broadcast_address": host, "hostname": "evil", "version": "0.0.1",
                     "remote_address": "", "topics": [TOPIC], "tombstones": [False]}
            lookupd.listed += [
                {**claim, "tcp_port": tcp, "http_port": nsqd.http.port},
                {**claim, "tcp_port": 1, "http_port": int(port)},
                {**claim, "tcp_port": tcp, "http_port": "4151"},
            ]
        if kind == "hangs":
            nsqd.answers.clear()
        if kind == "hangs altogether":
            nsqd.answers.clear()
            lookupd.answers.clear()
        yield [*lookupds_of(good), lookupd.http_address]  # of two claims the first one counts


# -- the admin page

_VOLATILE = {"connected", "connect_ts", "lookupds", "remote_addresses", "remote_address", "serial",
             "interval", "node_count", "answered_count", "problems", "tombstoned", "message"}


def steady(value):
    """A JSON value without what changes from one moment, or one nsqlookupd, to the next."""
    if isinstance(value, list):
        return [steady(each) for each in value]
    if isinstance(value, dict):
        return {key: steady(part) for key, part in value.items() if key not in _VOLATILE}
    return value


def of_good(value, names):
    """The parts of a JSON answer about the good nsqds: the objects that name one of them."""
    if isinstance(value, list):
        return [part for each in value for part in of_good(each, names)]
    if not isinstance(value, dict):
        return []
    if value.get("node") in names or value.get("address") in names:
        return [steady(value)]
    return [part for each in value.values() for part in of_good(each, names)]


def answered(admin, path, names):
    """As ``of_good``, once none of their answers is on its way: a busy machine may be slow."""
    found = []

    def is_answered():
        found[:] = of_good(admin.json(path), names)
        return not any(each.get("is_waiting") for each in found)

    wait_until(is_answered)
    return found


def by_text(parts):
    """Parts in an order of their own."""
    return sorted(json.dumps(part, sort_keys=True) for part in parts)


def seen_by_admin(lookupds, good, capsys, caplog):
    """All that the pages and the API say of the good nsqds and nsqlookupds."""
    names = {*good.addresses, *(each.http_address for each in good.lookupds)}
    seen = {}
    with running_admin(lookupd_http_addresses=lookupds, request_timeout=2.0) as admin:
        wait_until(lambda: {each["address"] for each in admin.json("/api/live/nodes")["list"]
                            if each["is_up"]} >= set(good.addresses))
        lookup_page = "/api/live/lookup"
        wait_until(lambda: {each["address"] for each in of_good(admin.json(lookup_page), names)
                            if each.get("is_up")} >= {one.http_address for one in good.lookupds})
        paths = [f"/api/topics/{TOPIC}", f"/api/topics/{TOPIC}/{CHANNEL}", "/api/counter",
                 "/api/live/nodes", f"/api/live/topics/{TOPIC}",
                 f"/api/live/topics/{TOPIC}/{CHANNEL}", "/api/live/lookup", "/api/live/producers",
                 *(f"/api{live}/nodes/{name}" for live in ("", "/live")
                   for name in good.addresses)]
        for path in paths:
            seen[path] = by_text(answered(admin, path, names))
        # The original's list of nodes has no name of the node as a whole.
        ports = [int(name.split(":")[1]) for name in good.addresses]
        seen["/api/nodes"] = by_text(
            steady(each) for each in admin.json("/api/nodes")["nodes"]
            if each["http_port"] in ports)
        seen["/metrics"] = [line for line in admin.get("/metrics").text.splitlines()
                            if any(f'"{name}"' in line for name in names)]
        for path in ("/", "/nodes", "/lookup", f"/topics/{TOPIC}"):
            assert admin.get(path).status_code == 200
    assert all(seen[path] for path in seen if path != "/api/live/producers")
    return seen


# -- the tools


def run(capsys, *words):
    """Run a tool; return the JSON objects that it prints."""
    capsys.readouterr()
    main([*words])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def seen_by_stat(lookupds, good, capsys, caplog):
    """The last line of nsq_stat, of the good nsqds."""
    words = [f"--lookupd-http-address={address}" for address in lookupds]
    record = run(capsys, "nsq_stat", f"--topic={TOPIC}", f"--channel={CHANNEL}", "--interval=50ms",
                 "--count=2", "--json", "--http-client-request-timeout=2s", *words)[-1]
    return {name: record["nsqds"][name] for name in good.addresses}


def seen_by_doctor(lookupds, good, capsys, caplog):
    """The findings about the good servers, without the times that they took."""
    words = [f"--lookupd-http-address={address}" for address in lookupds]
    [report] = run(capsys, "doctor", f"--topic={TOPIC}", "--watch=0", "--json",
                   "--request-timeout=2s", "--consumer-opt=auth_secret,x", *words)
    names = [each.http_address for each in [*good.nsqds, *good.lookupds]]
    names += [each.tcp_address for each in good.nsqds]
    seen = by_text(
        {**found, "text": re.sub(r"\d+ ms", "N ms", found["text"])}
        for found in report["findings"]
        if any(found["where"] == name or found["where"].endswith(f" at {name}") for name in names))
    assert len(seen) >= 2
    return seen


# -- a consumer


def consumed(lookupds, good, capsys, caplog):
    """Consume the messages of the good nsqds; return bodies and log lines."""
    for nsqd in good.nsqds:
        for number in range(3):
            nsqd.post("/pub", f"{nsqd.http_address} {number}".encode(), topic=TOPIC)
    caplog.clear()
    bodies = []
    config = Config(auth_secret="x", lookupd_poll_interval=0.2, lookupd_poll_timeout=2,
                    max_in_flight=10)
    with Consumer(TOPIC, CHANNEL, lambda message: bodies.append(message.body), config=config,
                  lookupd_http_addresses=lookupds):
        wait_until(lambda: len({body for body in bodies if body.startswith(b"127.")}) == 6, 30)
    addresses = [nsqd.tcp_address for nsqd in good.nsqds]
    lines = [record.getMessage() for record in caplog.records
             if record.levelno >= logging.INFO]
    about = {re.sub(r"nsqlookupd \S+ lists", "nsqlookupd L lists", line) for line in lines
             if any(address in line for address in addresses)}
    return sorted(body for body in set(bodies) if body.startswith(b"127.")), about


@pytest.mark.parametrize("kind", ["lies", "hangs", "hangs altogether"])
@pytest.mark.parametrize("look", [seen_by_admin, seen_by_stat, seen_by_doctor, consumed])
def test_good_servers_are_seen_the_same_beside_a_hostile_one(good, kind, look, capsys, caplog):
    """Numbers, states and names on every page and in tools, messages, and lines of the log."""
    caplog.set_level(logging.INFO, "nsqclient")
    alone = look(lookupds_of(good), good, capsys, caplog)
    with hostile(good, kind) as lookupds:
        assert look(lookupds, good, capsys, caplog) == alone
