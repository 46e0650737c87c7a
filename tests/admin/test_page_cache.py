"""Answers that open pages share."""

from __future__ import annotations

from nsqclient.admin import page_cache
from nsqclient.admin.page_cache import PageCache


def test_an_answer_is_kept_until_the_data_changes():
    """The version decides; a new one drops all former answers."""
    cache = PageCache()
    cache.put("/a", 1, b"one")
    assert cache.get("/a", 1) == b"one" and cache.get("/a", 2) is None
    cache.put("/b", 2, b"two")
    assert cache.get("/a", 1) is None and cache.get("/a", 2) is None


def test_the_size_of_all_answers_is_limited(monkeypatch):
    """Beyond the limit an answer is not kept."""
    monkeypatch.setattr(page_cache, "_MOST_BYTES", 6)
    cache = PageCache()
    cache.put("/a", 1, b"1234")
    cache.put("/b", 1, b"5")
    assert (cache.get("/a", 1), cache.get("/b", 1)) == (b"1234", None)


def test_the_number_of_answers_and_the_size_of_paths_are_limited(monkeypatch):
    """Paths with invented arguments take no memory without end; a new version starts again."""
    monkeypatch.setattr(page_cache, "_MOST_ANSWERS", 2)
    cache = PageCache()
    for number in range(9):
        cache.put(f"/{number}", 1, b"")
    assert [number for number in range(9) if cache.get(f"/{number}", 1) == b""] == [0, 1]
    cache.put("/9", 2, b"")
    assert cache.get("/9", 2) == b""
    monkeypatch.setattr(page_cache, "_MOST_BYTES", 4)
    cache.put("/long", 3, b"")
    assert cache.get("/long", 3) is None


def test_pages_share_an_answer_until_an_action(cluster):
    """Two requests in one round get the same bytes; after an action the answer is built anew."""
    cluster.fill("events", "archive")
    admin = cluster.admin(refresh_interval=500.0)
    first = admin.get("/api/live/topics/events")
    cluster.nsqds[0].post("/topic/pause", topic="events")
    assert admin.get("/api/live/topics/events").content == first.content
    admin.post("/api/topics/events", {"action": "pause"})
    assert admin.get("/api/live/topics/events").content != first.content
