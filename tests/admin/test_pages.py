"""The pages as they are served: complete, and without foreign assets."""

import configparser
import fnmatch
import re
from pathlib import Path

import pytest

import nsqclient
from nsqclient.admin.messages import source_of_dead_letters

PATHS = ["/", "/topics/events", "/topics/events/archive", "/topics/orders.dead/keep", "/nodes",
         "/nodes/127.0.0.1:4151", "/lookup", "/producers"]


@pytest.fixture
def admin(cluster):
    cluster.fill("events", "archive")
    cluster.fill("orders.dead", "keep")
    return cluster.admin(allow_peek=True)


@pytest.mark.parametrize("path", PATHS)
def test_every_file_that_a_page_loads_exists(admin, path):
    answer = admin.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    foreign = re.search(
        r"<script(?![^>]* src=)| on\w+=| style=|(src|href)=.(https?:|//)", answer.text)
    assert foreign is None
    seen: set[str] = set()
    wanted = set(re.findall(r'(?:src|href)="([^"]*/static/[^"]+)"', answer.text))
    while wanted - seen:
        asset = min(wanted - seen)
        seen.add(asset)
        answer = admin.get(asset)
        assert answer.status_code == 200, asset
        wanted |= {f"/static/{name}" for name in re.findall(r'from "\./([\w.]+)"', answer.text)}
    assert len(seen) >= 8


@pytest.mark.parametrize("path, status, code", [
    ("/nothing", 404, "NOT_FOUND"), ("/topics/b$d", 400, "INVALID_TOPIC")])
def test_a_wrong_link_is_an_error(admin, path, status, code):
    answer = admin.get(path, Accept="text/html,*/*")
    assert (answer.status_code, answer.json()["message"]) == (status, code)


def test_a_page_without_nsqlookupd_offers_only_what_works(cluster):
    text = cluster.admin(direct=True).get("/lookup").text
    assert "registered at nsqlookupd" not in text and "on every nsqd, now" in text


@pytest.mark.parametrize("topic, source", [
    ("orders.dead", "orders"), ("orders-dlq", "orders"), ("a.b_dead_letters", "a.b"),
    ("Orders.DLQ", "Orders"), ("orders", ""), ("dead", ""), (".dlq", ""), ("undead", ""),
])
def test_topics_of_dead_letters_are_recognised_by_their_names(topic, source):
    assert source_of_dead_letters(topic) == source


def test_pages_and_assets_are_in_the_wheel():
    package = Path(nsqclient.__file__).parent
    settings = configparser.ConfigParser()
    settings.read(package.parent / "setup.cfg")
    patterns = settings["options.package_data"]["nsqclient"].split()
    files = [path for folder in ("static", "templates")
             for path in (package / "admin" / folder).iterdir()]
    assert len(files) > 20
    for path in files:
        name = path.relative_to(package).as_posix()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name
