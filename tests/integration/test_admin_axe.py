"""axe-core finds no serious problem on any page of nsqadmin: ``make test-external``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nsqclient import Consumer
from tests.support.browser.admin import Cluster
from tests.support.browser.browser import Page

pytestmark = pytest.mark.external
_FETCHED = Path(__file__).parents[2] / ".cache/axe/node_modules/axe-core/axe.min.js"
#: Problems of a page, in a line each.
_CHECK = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 150)}`)))"""


@pytest.fixture(scope="module")
def axe() -> str:
    path = Path(os.environ.get("AXE_CORE") or _FETCHED)
    if not path.is_file():
        pytest.skip("no axe-core: 'make fetch' fetches it with npm, or set AXE_CORE to axe.min.js")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def cluster(browser: Any, server_factory: Any, lookupd_factory: Any) -> Any:
    found = Cluster(server_factory, lookupd_factory)
    yield found
    found.close()


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
                     "/doctor", "/topics/gone", "/no-page"):
            page.goto(admin.url + path)
            page.wait("!document.body.classList.contains('waiting')")
            page.eval(axe + "; true")
            for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
                page.prefer(scheme)
                page.resize(width, 860, phone=width < 500)
                page.wait(f"document.documentElement.dataset.theme === '{scheme}'")
                if problems := page.eval(_CHECK):
                    found[path, scheme, width] = problems
        assert found == {}
    cluster.nsqds[1].kill()
    page.goto(f"{admin.url}/nodes")
    page.wait_text("#problems", cluster.addresses[1])
    page.eval(axe + "; true")
    assert page.eval(_CHECK) == []
