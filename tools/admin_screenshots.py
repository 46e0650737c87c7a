"""Make the screenshots of the admin page that the documentation shows: docs/images/admin-*.png.

Runs an embedded cluster with some traffic, and the system's Chromium (or CHROMIUM=path). The
pictures show the page at that moment, so they differ a little each time.

    python tools/admin_screenshots.py
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from nsqclient import Config, Consumer, Producer  # noqa: E402  the path is set first
from nsqclient.admin import AdminSettings  # noqa: E402
from nsqclient.admin.app import AdminServer  # noqa: E402
from nsqclient.devserver import Nsqd, Nsqlookupd  # noqa: E402
from nsqclient.http import NsqlookupdHTTP  # noqa: E402
from tests.support.browser.admin import running_admin  # noqa: E402
from tests.support.browser.browser import Browser, Page, find_chromium  # noqa: E402
from tests.support.faults.hostile import HostileNsqd, HostileNsqlookupd  # noqa: E402

TARGET = CHECKOUT / "docs" / "images"
#: Width and height of a picture, in pixels: readable, and small as a file.
SIZE = (1180, 720)
#: Refreshes to wait for before the first picture, so that the charts have data.
ROUNDS = 40

TOPICS = {
    "audit-log": ("archive",), "clicks": ("archive", "sessions"), "emails": ("send",),
    "orders": ("archive", "billing", "shipping"), "orders.dead": ("keep",),
    "payments": ("archive", "ledger"), "signups": ("welcome",), "thumbnails": ("render",),
}


class Traffic:
    """Publishes and consumes until ``stop()``."""

    def __init__(self, nsqds: list[Nsqd]) -> None:
        addresses = [nsqd.tcp_address for nsqd in nsqds]
        self._producers = [
            Producer([address], config=Config(
                user_agent=f"shop/2.{n} nsqclient/0.1", client_id=f"web-{n}"))
            for n, address in enumerate(addresses)
        ]
        self._consumers = [
            Consumer(topic, channel, lambda message: None, nsqd_tcp_addresses=addresses,
                     max_in_flight=25, config=Config(
                         user_agent=f"{channel}/1.4 nsqclient/0.1", client_id=f"{channel}-{n}",
                         deflate=channel == "archive", snappy=channel == "billing"))
            for topic, channel in (("orders", "archive"), ("orders", "billing"),
                                   ("clicks", "sessions"), ("payments", "ledger"))
            for n in range(2)
        ]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def start(self) -> None:
        for consumer in self._consumers:
            consumer.start()
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._ending.wait(0.05):
            turn += 1
            # Vary the load so that the charts show curves.
            wave = abs(turn % 60 - 30)
            for number, producer in enumerate(self._producers):
                producer.publish_many("orders", [b'{"order": 1}'] * (2 + wave // (2 + number)))
                producer.publish_many("clicks", [b'{"page": "/"}'] * (1 + (turn * 7 + number) % 9))
                producer.publish("payments", b'{"amount": 12}')
            if turn % 12 == 0:
                self._producers[0].publish("emails", b"to: ada@example.com")

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        for producer in self._producers:
            producer.close(1.0)
        for consumer in self._consumers:
            consumer.stop(1.0)


def fill(nsqds: list[Nsqd]) -> None:
    """Make topics and channels, and some dead letters."""
    for nsqd in nsqds:
        for topic, channels in TOPICS.items():
            nsqd.create_topic(topic)
            for channel in channels:
                nsqd.create_channel(topic, channel)
    for number in range(7):
        nsqds[0].publish("orders.dead", b'{"order": %d, "error": "no such address", "items":'
                         b' [{"sku": "A-%d", "count": 2}]}' % (4711 + number, number))


def take(page: Page, url: str, nsqds: list[Nsqd]) -> None:
    """Visit each page and take its picture."""
    live = "document.querySelector('#live').dataset.state === 'live'"

    def picture(name: str, path: str = "", scroll: str = "") -> None:
        if path:
            page.goto(url + path)
            page.wait(live)
        page.move_mouse(2, 2)
        if scroll:
            page.eval(f"document.querySelector('{scroll}').scrollIntoView()")
        page.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(TARGET / f"admin-{name}.png")
        print(f"admin-{name}.png {(TARGET / f'admin-{name}.png').stat().st_size // 1024} KiB")

    page.goto(url + "/")
    page.wait(live)
    page.wait(f"fetch('{url}/api/live/topics').then((a) => a.json())"
              f".then((v) => v.serial > {ROUNDS})", timeout=120)
    picture("topics", "/")
    picture("topic", "/topics/orders")
    page.prefer("dark")
    picture("channel", "/topics/orders/billing")
    page.prefer("light")
    picture("nodes", "/nodes")
    picture("node", f"/nodes/{nsqds[0].http_address}")
    picture("producers", "/producers")
    picture("consumers", "/consumers")
    page.prefer("dark")
    picture("topics-dark", "/")
    page.prefer("light")
    picture("lookup", "/lookup")
    page.goto(f"{url}/topics/orders.dead/keep")
    page.click("#peek-loan")
    page.wait("document.querySelector('#peek-note').innerText.includes('requeued')")
    picture("messages", scroll="#peek")
    page.goto(f"{url}/topics/orders")
    page.click("[data-action=delete]")
    page.type("order")
    picture("confirm")
    page.goto(url + "/")
    page.wait(live)
    for topic in ("clicks", "emails"):
        page.click(f"[data-pick={topic}]")
    page.click("[data-bulk=empty]")
    picture("bulk")
    page.goto(url + "/doctor")
    page.wait("document.querySelector('#doctor-list').children.length > 3")
    picture("doctor")
    page.resize(390, 844, phone=True)
    picture("phone", "/")
    picture("phone-topic", "/topics/orders")


def take_problems(page: Page, url: str, hung: str) -> None:
    """Take the picture of a page with an nsqd that hangs."""
    page.goto(url + "/nodes")
    page.wait("document.querySelector('#problems').innerText.includes('waiting since')")
    page.wait(f"document.querySelector('#nodes').innerText.includes('{hung}')")
    page.move_mouse(2, 2)
    page.screenshot(TARGET / "admin-problems.png")


def main() -> int:
    """Make the pictures; return the exit status."""
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium: install it, or set CHROMIUM to its path", file=sys.stderr)
        return 1
    TARGET.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lookupds = [stack.enter_context(Nsqlookupd()) for _ in range(2)]
        nsqds = [stack.enter_context(
            Nsqd(lookupd_tcp_addresses=[each.tcp_address for each in lookupds]))
            for _ in range(3)]
        fill(nsqds)
        with NsqlookupdHTTP(lookupds[0].http_address) as lookupd:
            lookupd.create_channel("invoices", "print")
        traffic = Traffic(nsqds)
        traffic.start()
        stack.callback(traffic.stop)
        server = stack.enter_context(AdminServer(AdminSettings(
            lookupd_http_addresses=tuple(each.http_address for each in lookupds),
            allow_actions=True, allow_peek=True, refresh_interval=0.5), port=0))
        browser = Browser(chromium, folder)
        stack.callback(browser.close)
        take(browser.page(*SIZE), server.url.rstrip("/"), nsqds)
        hung = stack.enter_context(HostileNsqd("orders", "archive"))
        liar = stack.enter_context(HostileNsqlookupd("orders"))
        liar.listed.append({
            "remote_address": "127.0.0.1:1", "hostname": "vm", "broadcast_address": "127.0.0.1",
            "tcp_port": hung.http.port + 1, "http_port": hung.http.port, "version": "1.3.0",
            "topics": ["orders"], "tombstones": [False]})
        hung.answers.clear()
        stack.callback(hung.answers.set)
        admin = stack.enter_context(running_admin(
            lookupd_http_addresses=[lookupds[0].http_address, f"127.0.0.1:{liar.http.port}"],
            request_timeout=1.0))
        take_problems(browser.page(*SIZE), admin.url, f"127.0.0.1:{hung.http.port}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
