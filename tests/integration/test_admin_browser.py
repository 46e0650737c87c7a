"""The admin page in a real browser, on both kinds of cluster: every page and every action."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqclient import Config, Consumer, Producer
from nsqclient.devserver import Nsqd
from tests.support.browser.admin import Cluster, running_admin
from tests.support.browser.browser import Browser, Page
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until

pytestmark = pytest.mark.external
ROWS = "tbody tr"
#: For tests of the page only, for which the kind of server matters little.
OF_THE_PAGE = pytest.mark.parametrize(
    "server_kind", ["embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.long])])


@pytest.fixture
def cluster(browser: Browser, server_factory: Any, lookupd_factory: Any) -> Iterator[Cluster]:
    found = Cluster(server_factory, lookupd_factory)
    yield found
    found.close()


def confirm(page: Page, name: str) -> None:
    page.wait("document.querySelector('#confirm').open")
    page.type(name)
    page.click("#confirm-yes")


def row(text: str) -> str:
    return f"[...document.querySelectorAll('{ROWS}')].find((e) => e.innerText.includes('{text}'))"


def click_in_row(page: Page, text: str, label: str) -> None:
    button = f"[...({row(text)}?.querySelectorAll('button') ?? [])].find(" \
             f"(e) => e.innerText.startsWith('{label}'))"
    page.wait(f"Boolean({button})")
    page.eval(f"{button}.click()")


def is_paused(cluster: Cluster, *names: str) -> list[bool]:
    return [nsqd.stats(*names)["paused"] for nsqd in cluster.nsqds]


@OF_THE_PAGE
def test_every_page_is_reached_by_links(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin(allow_peek=True)
    addresses = [nsqd.tcp_address for nsqd in cluster.nsqds]
    with Producer(addresses) as producer, Consumer(
        "events", "archive", lambda message: None, nsqd_tcp_addresses=addresses,
        config=Config(user_agent="walker/1", deflate=True),
    ):
        producer.publish("events", b"x")
        page.goto(f"{admin.url}/")
        page.click("tbody a[href$='/topics/events']")
        page.wait_text("#channels", "archive")
        page.click("#channels a")
        page.wait_text("#clients", "walker/1")
        page.wait_text("#clients", "deflate")
        page.click("#clients td a")
        page.wait_text("#topics", "events")
        page.click("nav a[href$='/nodes']")
        page.wait_text("#up", "2 of 2")
        page.click("nav a[href$='/producers']")
        page.wait_text("#connections", "events")
        page.click("nav a[href$='/lookup']")
        page.wait_text("#lookupds", cluster.lookupds[0].http_address)


@OF_THE_PAGE
def test_numbers_refresh_by_themselves_and_nothing_jumps(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin()
    page.goto(f"{admin.url}/")
    page.wait_text("#sum-depth", "6")
    page.eval("globalThis.shift = 0; new PerformanceObserver((list) => { for (const e of"
              " list.getEntries()) globalThis.shift += e.value; })"
              ".observe({type: 'layout-shift', buffered: false})")
    before = page.eval(f"JSON.stringify({row('events')}.getBoundingClientRect())")
    with Producer([nsqd.tcp_address for nsqd in cluster.nsqds]) as producer:
        for number in range(3):
            producer.publish_many("events", [b"x"] * 50)
            page.wait_text("#sum-depth", str(6 + 50 * (number + 1)))
    page.wait(f"{row('events')}.querySelector('.spark').getAttribute('d').split('L').length > 3")
    assert page.eval(f"JSON.stringify({row('events')}.getBoundingClientRect())") == before
    assert page.eval("globalThis.shift") < 0.01
    assert page.eval("performance.getEntriesByType('navigation').length") == 1


def test_a_topic_is_paused_emptied_and_deleted_from_its_page(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin()
    page.goto(f"{admin.url}/topics/events")
    page.wait_text("#channels", "archive")
    page.click("#pause")
    page.wait_text("#pause", "Unpause")
    assert is_paused(cluster, "events") == [True, True]
    page.click("#pause")
    wait_until(lambda: is_paused(cluster, "events") == [False, False])
    page.fill("#channel-name", "mail")
    page.press("Enter")
    page.wait_text("#channels", "mail")
    page.click("[data-action=empty]")
    confirm(page, "events")
    page.wait_text("#toasts", "Emptied")
    page.click("[data-action=delete]")
    confirm(page, "events")
    page.wait("location.pathname === '/'")
    assert all(not nsqd.stats("events") for nsqd in cluster.nsqds)


def test_an_action_in_the_row_of_an_nsqd_acts_there_alone(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin()
    first, second = cluster.addresses
    page.goto(f"{admin.url}/topics/events")
    click_in_row(page, first, "Pause")
    page.wait(f"{row(first)}.innerText.includes('Unpause')")
    assert is_paused(cluster, "events") == [True, False]
    page.goto(f"{admin.url}/topics/events/archive")
    click_in_row(page, first, "Empty")
    confirm(page, "archive")
    page.wait_text("#depth", "3")
    assert [nsqd.stats("events", "archive")["depth"] for nsqd in cluster.nsqds] == [0, 3]
    page.goto(f"{admin.url}/nodes/{second}")
    click_in_row(page, "events", "Tombstone")
    confirm(page, "events")
    page.wait_text("#topics-empty", "No topics on this nsqd")
    assert cluster.nsqds[0].stats("events") and not cluster.nsqds[1].stats("events")


def test_topics_are_created_and_left_overs_deleted(page, cluster):
    admin = cluster.admin()
    page.goto(f"{admin.url}/lookup")
    page.wait_text("#inactive-empty", "Nothing is left over")
    page.fill("#create-topic", "new")
    page.fill("#create-channel", "c")
    page.press("Enter")
    page.wait_text("#inactive", "channel of new")
    page.fill("#create-topic", "made")
    page.eval("document.querySelector('#create-node').value = '*'")
    page.click("#create button")
    page.wait_text("#toasts", "Created topic made")
    assert all(nsqd.stats("made") for nsqd in cluster.nsqds)
    click_in_row(page, "channel of new", "Delete")
    confirm(page, "c")
    page.wait("!document.body.innerText.includes('channel of new')")
    click_in_row(page, "new", "Delete")
    confirm(page, "new")
    page.wait_text("#inactive-empty", "Nothing is left over")
    page.fill("#create-topic", "b$d")
    page.press("Enter")
    page.wait_text("#toasts .bad", "INVALID_TOPIC")


@OF_THE_PAGE
def test_a_message_is_published_and_peeked_at(page, cluster):
    cluster.fill("events", "archive", 0)
    admin = cluster.admin(allow_peek=True)
    page.goto(f"{admin.url}/topics/events")
    page.wait_text("#channels", "archive")
    page.click("#peek-start")
    wait_until(lambda: any(
        channel["channel_name"].startswith("peek-") and channel["client_count"]
        for channel in cluster.nsqds[0].stats("events")["channels"]))
    page.fill("#publish-body", '{"a": [1], "b": "ü"}')
    page.eval(f"document.querySelector('#publish-node').value = '{cluster.addresses[0]}'")
    page.click("#publish button")
    page.wait_text("#peek-list pre", '"b": "ü"')
    assert page.text("#peek-list pre").splitlines()[0] == "{"
    page.click("#peek-start")  # it says "Stop" now
    page.wait_text("#peek-start", "Peek")
    assert cluster.nsqds[0].stats("events", "archive")["depth"] == 1


@OF_THE_PAGE
def test_dead_letters_are_shown_and_requeued(page, cluster):
    cluster.fill("orders.dead", "keep", 2)
    cluster.fill("orders", "work", 0)
    admin = cluster.admin(allow_peek=True)
    page.goto(f"{admin.url}/topics/orders.dead")
    page.wait_text(".note", "dead letters of orders")
    page.click("#channels a")
    page.wait_text("#depth", "4")
    page.click("#peek-loan")
    page.wait("document.querySelectorAll('#peek-list li').length === 4")
    page.wait_text("#peek-note", "requeued")
    page.click("#peek-list button")
    page.wait_text("#toasts", "Published a copy to orders")
    depths = [nsqd.stats("orders.dead", "keep") for nsqd in cluster.nsqds]
    assert [each["depth"] for each in depths] == [2, 2]
    assert sum(nsqd.stats("orders", "work")["depth"] for nsqd in cluster.nsqds) == 1


def test_a_killed_nsqd_is_named_and_comes_back(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin(direct=True)
    down = cluster.nsqds[1]
    page.goto(f"{admin.url}/")
    page.wait_text("#sum-nodes", "2")
    down.kill()
    page.wait_text("#problems", down.http_address)
    page.wait_text("#live-text", "1 problem")
    page.wait_text("#sum-depth", "3")
    down.start()
    page.wait("document.querySelector('#problems').hidden")
    page.wait_text("#live-text", "Live")


@OF_THE_PAGE
def test_search_sort_and_dialogs_work_with_the_keyboard_alone(page, cluster):
    cluster.fill("events", "archive")
    cluster.fill("other", "archive", 0)
    admin = cluster.admin()
    page.goto(f"{admin.url}/")
    page.wait_text("#shown", "2 topics")
    page.press("Tab")
    assert page.eval("document.activeElement.className") == "skip"
    page.press("/")
    page.type("oth")
    page.wait_text("#shown", "1 of 2 topics")
    page.press("Escape")
    page.wait_text("#shown", "2 topics")
    page.press("Tab")
    assert page.eval("document.activeElement.id") == "bulk-all"
    page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelector('th[data-key=name]').ariaSort === 'descending'")
    page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelector('th[data-key=depth]').ariaSort === 'descending'")
    page.goto(f"{admin.url}/topics/events")
    page.wait_text("#channels", "archive")
    page.eval("document.querySelector('[data-action=delete]').focus()")
    page.press("Enter")
    page.wait("document.activeElement.id === 'confirm-typed'")
    page.type("event")
    assert page.eval("document.querySelector('#confirm-yes').disabled")
    page.press("Escape")
    page.wait("!document.querySelector('#confirm').open")
    assert page.eval("document.activeElement.dataset.action") == "delete"
    assert cluster.nsqds[0].stats("events")


@OF_THE_PAGE
def test_a_user_without_rights_sees_no_buttons(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin(allow_actions=False)
    for path in ("/topics/events", "/topics/events/archive", "/lookup",
                 f"/nodes/{cluster.addresses[0]}"):
        page.goto(admin.url + path)
        page.wait("document.querySelector('#live').dataset.state === 'live'")
        assert "Read-only" in page.text(".status")
        buttons = page.eval("[...document.querySelectorAll('main button')]"
                            ".filter((e) => !e.closest('th') && e.checkVisibility()).length")
        assert buttons == 0


def test_thousands_of_topics_stay_fluid(page):
    with Nsqd() as nsqd:
        for number in range(3000):
            nsqd.create_topic(f"topic-{number:04}")
        with running_admin(nsqd_http_addresses=[nsqd.http_address]) as admin:
            page.goto(f"{admin.url}/")
            page.wait_text("#shown", "3,000 topics")
            assert page.eval(f"document.querySelectorAll('{ROWS}').length") == 500
            page.eval("document.querySelector('.frame > button').click()")
            page.wait(f"document.querySelectorAll('{ROWS}').length === 1000")
            page.click("th[data-key=name] button")
            page.wait(f"document.querySelector('{ROWS}').innerText.includes('topic-2999')")
            page.fill("#search", "1234")
            page.wait(f"document.querySelectorAll('{ROWS}').length === 1")
            assert page.text(ROWS).startswith("topic-1234")


@OF_THE_PAGE
def test_several_topics_are_deleted_with_one_confirmation(page, cluster):
    for topic in ("one", "two", "three"):
        cluster.fill(topic, "c", 0)
    admin = cluster.admin()
    page.goto(f"{admin.url}/")
    page.wait_text("#shown", "3 topics")
    assert page.eval("[...document.querySelectorAll('[data-bulk]')].every((e) => e.disabled)")
    for topic in ("one", "two"):
        page.click(f"[data-pick={topic}]")
    page.wait_text("#bulk-count", "2 topics selected")
    page.click("[data-bulk=pause]")
    page.wait_text("#toasts", "Paused 2 topics")
    page.click("#bulk-all")
    page.click("[data-bulk=delete]")
    page.wait_text("#confirm-text", "one, three, two")
    confirm(page, "3 topics")
    page.wait_text("#topics-empty", "No topics yet")
    page.wait_text("#bulk-count", "0 topics selected")


@OF_THE_PAGE
def test_all_dead_letters_are_replayed_from_the_page_of_the_topic(page, cluster):
    cluster.fill("orders.dead", "keep", 3)
    cluster.fill("orders", "work", 0)
    admin = cluster.admin()
    page.goto(f"{admin.url}/topics/orders.dead")
    page.wait("document.querySelector('#replay-channel').value === 'keep'")
    page.click("#replay-start")
    confirm(page, "keep")
    page.wait_text("#replay-note", "6 of 6 letters replayed.")
    assert sum(nsqd.stats("orders", "work")["depth"] for nsqd in cluster.nsqds) == 6


@OF_THE_PAGE
def test_the_doctor_has_a_page(page, cluster):
    cluster.fill("events", "archive", 0)
    cluster.nsqds[0].post("/topic/pause", topic="events")
    admin = cluster.admin()
    page.goto(f"{admin.url}/doctor")
    page.wait_text("#doctor-list li", "the topic is paused")
    page.wait_text("#doctor-list pre", "topic/unpause")
    page.click("#doctor-run")
    page.wait_text("#doctor-summary", "1 error")


@OF_THE_PAGE
def test_the_order_of_the_rows_is_kept(page, cluster):
    cluster.fill("small", "c", 0)
    cluster.fill("large", "c", 2)
    admin = cluster.admin()
    page.goto(f"{admin.url}/")
    page.wait_text("#shown", "2 topics")
    page.click("th[data-key=depth] button")
    page.goto(f"{admin.url}/nodes")
    page.goto(f"{admin.url}/")
    page.wait_text("#shown", "2 topics")
    assert page.eval("document.querySelector('th[data-key=depth]').ariaSort") == "descending"
    assert page.text(ROWS).startswith("large")


@OF_THE_PAGE
def test_the_page_of_an_unknown_topic_has_no_buttons(page, cluster):
    admin = cluster.admin()
    for path in ("/topics/nope", "/topics/nope/c", "/nodes/127.0.0.1:1"):
        page.goto(admin.url + path)
        page.wait("document.querySelector('#missing').checkVisibility()")
        assert page.eval("[...document.querySelectorAll('main button, main .card')]"
                         ".filter((e) => e.checkVisibility()).length") == 0


@OF_THE_PAGE
def test_consumers_of_all_topics_are_on_one_page(page, cluster):
    cluster.fill("orders", "mail", 0)
    cluster.fill("clicks", "count", 0)
    admin = cluster.admin()
    addresses = [nsqd.tcp_address for nsqd in cluster.nsqds]
    with Consumer("orders", "mail", lambda message: None, nsqd_tcp_addresses=addresses), Consumer(
            "clicks", "count", lambda message: None, nsqd_tcp_addresses=addresses):
        page.goto(f"{admin.url}/consumers")
        page.wait_text("#count", "4")
        page.wait_text("#connections", "orders / mail")
        page.fill("#search", "clicks")
        page.wait_text("#shown", "2 of 4")
        page.click("#connections a")
        page.wait("location.pathname === '/topics/clicks/count'")


@OF_THE_PAGE
def test_a_chart_has_times_and_gaps(page, cluster):
    cluster.fill("events", "archive")
    admin = cluster.admin(direct=True)
    page.goto(f"{admin.url}/topics/events/archive")
    line = "document.querySelector('#chart .spark').getAttribute('d')"
    page.wait(f"{line}.split('L').length > 3")
    assert page.text("#chart .scale").split() == ["6", "0"]
    times = "[...document.querySelectorAll('#chart .times span')].map((e) => e.innerText)"
    assert all(len(each.split(":")) == 3 for each in page.eval(times))
    draw = """import('/static/spark.js').then((m) => m.chart(document.querySelector('#chart'),
        [0, 2, 4, 6, 60, 62], {'': [1, 2, null, 3, 4, 5]}, 'x', String))"""
    page.eval(draw)
    assert page.eval(f"{line}.split('M').length - 1") == 3  # 1-2, 3, and 4-5 after the pause
    box = page.eval("(({x, y, width}) => [x, y, width])(document.querySelector('#chart svg')"
                    ".getBoundingClientRect())")
    page.move_mouse(box[0] + box[2] * 60 / 62, box[1] + 20)
    page.eval(draw)
    page.move_mouse(box[0] + box[2] * 60 / 62 + 1, box[1] + 20)
    assert page.text("#chart .tip").endswith("  4")


def test_latencies_are_shown_where_nsqd_measures_them(page):
    latency = {"count": 5, "percentiles": [{"quantile": 0.99, "value": 12_500_000}]}
    channel = {"channel_name": "c", "depth": 0, "clients": [], "e2e_processing_latency": latency}
    with recording() as server:
        host, port = server.address.split(":")
        server.reply = lambda request: json.dumps({
            "version": "1.3.0", "health": "OK", "broadcast_address": host, "hostname": "h",
            "http_port": int(port), "tcp_port": 4150, "topics": [
                {"topic_name": "t", "depth": 0, "e2e_processing_latency": latency,
                 "channels": [channel]},
                {"topic_name": "u", "depth": 0, "channels": []}],
        }).encode()
        with running_admin(nsqd_http_addresses=[server.address]) as admin:
            for path in ("/topics/t", "/topics/t/c"):
                page.goto(admin.url + path)
                page.wait_text("#latency", "99 % of messages within")
                assert "12.5 ms" in page.text("#latency")
            page.goto(f"{admin.url}/topics/u")
            page.wait_text("#live-text", "Live")
            assert page.eval("document.querySelector('#latency').hidden")
            page.goto("about:blank")


_FETCHED = Path(__file__).parents[2] / ".cache/axe/node_modules/axe-core/axe.min.js"
#: Problems of a page, in a line each.
_CHECK = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 150)}`)))"""


@pytest.fixture(scope="module")
def axe() -> str:
    path = Path(os.environ.get("AXE_CORE") or _FETCHED)
    if not path.is_file():
        pytest.skip("no axe-core: tools/fetch.sh fetches it, or set AXE_CORE to axe.min.js")
    return path.read_text(encoding="utf-8")


def test_no_page_has_a_serious_problem(page: Page, cluster: Cluster, axe: str) -> None:
    """Light, dark and on a phone; with buttons, messages, findings, and a failed server."""
    cluster.fill("orders.dead", "keep")
    cluster.nsqds[0].post("/topic/pause", topic="orders.dead")
    admin = cluster.admin(direct=True, allow_peek=True)
    with Consumer("orders.dead", "keep", lambda message: None,
                  nsqd_tcp_addresses=[cluster.nsqds[0].tcp_address]):
        found = {}
        for path in ("/", "/topics/orders.dead", "/topics/orders.dead/keep", "/nodes",
                     f"/nodes/{cluster.addresses[0]}", "/lookup", "/producers", "/consumers",
                     "/doctor", "/topics/gone"):
            page.goto(admin.url + path)
            page.wait("!document.body.classList.contains('waiting')")
            page.eval(axe + "; true")
            for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
                page.prefer(scheme)
                page.resize(width, 860, phone=width < 500)
                page.wait(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
                if problems := page.eval(_CHECK):
                    found[path, scheme, width] = problems
            assert page.eval("document.documentElement.scrollWidth") <= 360, path
        assert found == {}
    cluster.nsqds[1].kill()
    page.goto(f"{admin.url}/nodes")
    page.wait_text("#problems", cluster.addresses[1])
    page.eval(axe + "; true")
    assert page.eval(_CHECK) == []
