"""The admin page in a browser while one of three nsqds is stopped by SIGSTOP, or dead."""

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.browser.accessibility import CHECK_SHOWN
from tests.support.browser.admin import Cluster
from tests.support.browser.browser import Page

pytestmark = [pytest.mark.real, pytest.mark.external]

#: Fills a page that shows the time of a problem.
SINCE = (r"/(fails|waiting) since \d\d:\d\d:\d\d/"
         ".test(document.querySelector('#problems').innerText)")


@pytest.fixture
def cluster(browser: Any, real_nsqd: Any, real_nsqlookupd: Any) -> Iterator[Cluster]:
    found = Cluster(real_nsqd, real_nsqlookupd, nsqd_count=3)
    yield found
    found.close()


@pytest.fixture
def stopped(cluster: Cluster) -> Iterator[Any]:
    """The last nsqd; ``stop()`` sends it SIGSTOP."""
    nsqd: Any = cluster.nsqds[2]
    found = SimpleNamespace(
        address=nsqd.http_address, stop=lambda: os.kill(nsqd.pid, signal.SIGSTOP),
        go_on=lambda: os.kill(nsqd.pid, signal.SIGCONT))
    yield found
    found.go_on()


def test_every_page_names_the_stopped_nsqd_and_shows_the_others(
    page: Page, cluster: Cluster, stopped: Any
) -> None:
    """Which one, since when, advice that fits, and the numbers of the others."""
    cluster.fill("events", "archive")
    admin = cluster.admin(allow_peek=True, request_timeout=1.0)
    page.goto(f"{admin.url}/")
    page.wait_text("#sum-depth", "9")
    stopped.stop()
    good = cluster.addresses[0]
    for path, shown in (
        ("/", ("#sum-depth", "6")), ("/topics/events", ("#channel-depth", "6")),
        ("/topics/events/archive", ("#depth", "6")), ("/nodes", ("#up", "2 of 3")),
        (f"/nodes/{good}", ("#topics", "events")), ("/lookup", ("#lookupds", "up")),
        ("/producers", ("#count", "0")), ("/consumers", ("#count", "0")),
    ):
        page.goto(admin.url + path)
        page.wait_text("#problems", stopped.address)
        page.wait(SINCE)
        page.wait_text(*shown)
        assert page.eval(CHECK_SHOWN) == [], path
    page.wait_text("#problems", "fails since")
    page.wait_text("#problems", "If it hangs, look at its process")
    page.goto(f"{admin.url}/nodes/{stopped.address}")
    page.wait_text("#problems", stopped.address)
    page.goto(f"{admin.url}/doctor")
    page.wait_text("#doctor-list", stopped.address)
    stopped.go_on()
    page.goto(f"{admin.url}/nodes")
    page.wait_text("#up", "3 of 3")
    page.wait("document.querySelector('#problems').hidden")


def test_a_hidden_warning_stays_hidden(page: Page, cluster: Cluster, stopped: Any) -> None:
    """On each page and while its reason changes; it can be shown again; another one is shown."""
    cluster.fill("events", "archive")
    admin = cluster.admin(direct=True, request_timeout=1.0)
    page.goto(f"{admin.url}/")
    page.wait_text("#sum-depth", "9")
    stopped.stop()
    page.wait_text("#problems", stopped.address)
    page.click("#problems-hide")
    page.goto(f"{admin.url}/nodes")
    page.wait_text("#nodes", "fails since")
    assert page.eval("document.querySelector('#problems').hidden")
    page.wait_text("#live-text", "1 problem")
    cluster.nsqds[1].kill()
    page.wait_text("#problems", cluster.addresses[1])
    assert stopped.address not in page.text("#problems")
    page.click("#problems-show")
    page.wait_text("#problems", stopped.address)
