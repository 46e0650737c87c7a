"""Who may do what: foreign pages, names in the Host header, read-only pages, the ACL header."""

from __future__ import annotations

import pytest
import requests

from nsqclient.admin import AdminSettings
from nsqclient.admin.server import AdminServer
from tests.support.admin import Admin, running_admin


@pytest.fixture
def admin(cluster):
    """A page on which everybody may act."""
    return cluster.admin()


def test_a_foreign_page_cannot_act(admin):
    """A request with another page's Origin, or from another site, is refused."""
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        answer = admin.post("/api/topics", {"topic": "made"}, **headers)
        assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN_ORIGIN")
    assert admin.json("/api/topics")["topics"] == []


def test_our_own_page_can_act(admin):
    """The same request with our own Origin is carried out."""
    headers = {"Origin": admin.url, "Sec-Fetch-Site": "same-origin"}
    assert admin.post("/api/topics", {"topic": "made"}, **headers).status_code == 200


@pytest.mark.parametrize("content_type", [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None])
def test_a_form_cannot_act(admin, content_type):
    """A body that a foreign form could send is not read."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = admin.raw("POST", "/api/topics", data=b'{"topic":"made"}', headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert admin.raw("POST", "/api/topics/t", headers=headers).status_code == 415


def test_only_known_names_call_a_page_on_loopback(cluster, admin):
    """A name that an attacker points at 127.0.0.1 gets nothing, nor does its page."""
    for path in ("/", "/api/topics", "/metrics", "/static/base.css"):
        answer = admin.get(path, Host="evil.example:80")
        assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN_HOST")
    assert admin.get("/ping", Host="localhost:4171").status_code == 200
    proxied = cluster.admin(allowed_hosts=["Admin.example"])
    assert proxied.get("/ping", Host="admin.example").status_code == 200
    assert proxied.get("/ping", Host="127.0.0.1").status_code == 200


def test_a_page_on_every_address_answers_to_any_name():
    """Where it listens for others, their names for it are not known, unless they are given."""
    settings = AdminSettings(nsqd_http_addresses=("127.0.0.1:1",))
    with AdminServer(settings, "0.0.0.0", 0) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        answer = requests.get(f"{url}ping", headers={"Host": "any.example"}, timeout=10)
        assert answer.status_code == 200


def test_a_page_is_read_only_unless_told_otherwise(cluster):
    """Without --allow-actions nothing can be changed, and the answer says how to allow it."""
    cluster.fill("events", "archive")
    admin = cluster.admin(allow_actions=False)
    for answer in (
        admin.post("/api/topics", {"topic": "made"}), admin.delete("/api/topics/events"),
        admin.post("/api/topics/events", {"action": "pause"}),
        admin.delete("/api/topics/events/archive"),
        admin.delete(f"/api/nodes/{cluster.addresses[0]}", {"topic": "events"}),
        admin.post("/api/live/publish", {"topic": "events", "body": "x"}),
        admin.raw("PUT", "/config/log_level", json="debug"),
    ):
        assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN")
        assert "--allow-actions" in answer.json()["hint"]
    assert admin.json("/api/topics/events")["channels"][0]["depth"] == 6


def test_the_acl_header_names_who_may_act(cluster):
    """With --admin-user only those whom the proxy names may act, and see buttons."""
    cluster.fill("events", "archive")
    admin = cluster.admin(admin_users=["ada", "bob"], acl_http_header="X-User")
    body = {"action": "pause"}
    for headers in ({}, {"X-User": "eve"}, {"X-Forwarded-User": "ada"}, {"X-User": ""}):
        assert admin.post("/api/topics/events", body, **headers).status_code == 403
        assert 'data-may-act="no"' in admin.get("/", **headers).text
    assert admin.post("/api/topics/events", body, **{"X-User": "bob"}).status_code == 200
    assert 'data-may-act="yes"' in admin.get("/", **{"X-User": "ada"}).text


def test_messages_are_shown_only_where_that_is_allowed(cluster):
    """Peeking needs --allow-peek, and with named admins one of them."""
    cluster.fill("events", "archive")
    path, body = "/api/live/peek", {"topic": "events", "count": 1, "seconds": 0.1}
    assert cluster.admin().post(path, body).status_code == 403
    named = cluster.admin(allow_peek=True, admin_users=["ada"])
    assert named.post(path, body).status_code == 403
    assert named.post(path, body, **{"X-Forwarded-User": "ada"}).status_code == 200
    reader = cluster.admin(allow_peek=True, allow_actions=False)
    assert reader.post(path, body).status_code == 200
    # A loan counts as an attempt, so it changes something.
    assert reader.post(path, {**body, "channel": "archive"}).status_code == 403


def test_every_answer_carries_the_security_headers(admin):
    """Pages, data, assets and errors forbid frames, sniffing and inline scripts."""
    for path in ("/", "/api/topics", "/static/base.css", "/nothing", "/topics/b$d"):
        headers = admin.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_huge_body_is_not_read(admin):
    """A body above the limit is refused."""
    answer = admin.post("/api/live/publish", {"topic": "t", "body": "x" * (3 * 1024 * 1024)})
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/..%2fserver.py",
                                  "/static//etc/passwd", "/..%2f..%2fetc/passwd"])
def test_assets_are_all_that_can_be_read(path):
    """No path leads out of the folder of assets."""
    with running_admin(nsqd_http_addresses=["127.0.0.1:1"]) as admin:
        session = requests.Session()
        request = requests.Request("GET", admin.url).prepare()
        request.url = admin.url + path
        with session:
            assert session.send(request, timeout=10).status_code in (403, 404)


def test_a_name_in_a_path_is_shown_as_text(cluster):
    """Markup in a path does not become markup."""
    admin: Admin = cluster.admin()
    text = admin.get("/nodes/<script>alert(1)<%2Fscript>").text
    assert "<script>alert" not in text
