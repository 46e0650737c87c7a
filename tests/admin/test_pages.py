"""The pages as they are served: whole, for everybody, and without anything from elsewhere."""

from __future__ import annotations

import re

import pytest

from nsqclient.admin.pages import source_of_dead_letters
from tests.support.accessibility import Html

PATHS = ["/", "/topics/events", "/topics/events/archive", "/topics/orders.dead/keep", "/nodes",
         "/nodes/127.0.0.1:4151", "/lookup", "/producers"]


@pytest.fixture
def admin(cluster):
    """A page with everything allowed."""
    return cluster.admin(allow_peek=True)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_sound_html(admin, path):
    """Every tag is closed, every field labelled, every button named, no script inline."""
    answer = admin.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert Html(answer.text).complaints() == []


@pytest.mark.parametrize("path", PATHS)
def test_what_a_page_loads_exists(admin, path):
    """Each asset of a page, and each module that one imports, is there."""
    seen: set[str] = set()
    wanted = {values[name] for _, values in Html(admin.get(path).text).tags
              for name in ("src", "href") if "/static/" in values.get(name, "")}
    while wanted - seen:
        asset = min(wanted - seen)
        seen.add(asset)
        answer = admin.get(asset)
        assert answer.status_code == 200, asset
        wanted |= {f"/static/{name}" for name in re.findall(r'from "\./([\w.]+)"', answer.text)}
    assert len(seen) >= 8


def test_where_one_is_is_said_to_everybody(admin):
    """The link of the page that is shown says so to a screen reader."""
    current = [values["href"] for _, values in Html(admin.get("/lookup").text).tags
               if values.get("aria-current") == "page"]
    assert current == ["/lookup"]


@pytest.mark.parametrize("path, status", [("/nothing", 404), ("/topics/b$d", 400)])
def test_an_error_is_a_page_for_people(admin, path, status):
    """A wrong link shows a page that leads back, and JSON to scripts."""
    answer = admin.get(path, Accept="text/html,*/*")
    assert answer.status_code == status
    assert Html(answer.text).complaints() == []
    assert admin.get(path).json()["message"] in ("NOT_FOUND", "INVALID_TOPIC")


def test_a_page_without_nsqlookupd_offers_only_what_works(cluster):
    """Where nsqds are asked directly there is nothing to register."""
    text = cluster.admin(direct=True).get("/lookup").text
    assert Html(text).complaints() == []
    assert "registered at nsqlookupd" not in text and "on every nsqd, now" in text


@pytest.mark.parametrize("topic, source", [
    ("orders.dead", "orders"), ("orders-dlq", "orders"), ("a.b_dead_letters", "a.b"),
    ("Orders.DLQ", "Orders"), ("orders", ""), ("dead", ""), (".dlq", ""), ("undead", ""),
])
def test_topics_of_dead_letters_are_known_by_their_names(topic, source):
    """An end such as .dead or -dlq names the topic before it."""
    assert source_of_dead_letters(topic) == source
