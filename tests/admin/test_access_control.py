"""Permissions: foreign pages, names in the Host header, read-only pages, the ACL header."""

import socket

import pytest
import requests

from nsqclient.admin import AdminSettings
from nsqclient.admin.access_control import _is_own
from nsqclient.admin.app import AdminServer
from nsqclient.errors import ConfigError
from tests.support.browser.admin import Admin


def test_a_foreign_page_cannot_act(admin):
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                    {"Origin": "http://["}, {"Origin": "//"}, {"Origin": ""},
                    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        answer = admin.post("/api/topics", {"topic": "made"}, **headers)
        assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN_ORIGIN")
    assert admin.json("/api/topics")["topics"] == []
    headers = {"Origin": admin.url, "Sec-Fetch-Site": "same-origin"}
    assert admin.post("/api/topics", {"topic": "made"}, **headers).status_code == 200


@pytest.mark.parametrize("host, origin, is_own", [
    ("nsq.example.com", "https://nsq.example.com", True),
    ("nsq.example.com:443", "https://nsq.example.com", True),
    ("nsq.example.com:80", "http://nsq.example.com", True),
    ("nsq.example.com:80", "https://nsq.example.com", True),
    ("nsq.example.com", "https://nsq.example.com:443", True),
    ("NSQ.example.com:4171", "http://nsq.example.com:4171", True),
    ("[::1]:4171", "http://[::1]:4171", True),
    ("nsq.example.com:4171", "http://nsq.example.com", False),
    ("nsq.example.com:443", "https://nsq.example.com:8443", False),
    ("nsq.example.com", "https://evil.example", False),
    ("nsq.example.com:443", "https://evil.example:443", False),
    ("", "null", False), ("", "", False), ("a:x", "http://a:x", False),
])
def test_a_default_port_in_the_host_header_is_that_of_the_page(host, origin, is_own):
    """nginx sends it with ``proxy_set_header Host $host:$server_port``."""
    assert _is_own(origin, host) is is_own


@pytest.mark.parametrize("content_type", [
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None])
def test_a_form_cannot_act(admin, content_type):
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = admin.raw("POST", "/api/topics", data=b'{"topic":"made"}', headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert admin.raw("POST", "/api/topics/t", headers=headers).status_code == 415


def test_a_page_on_loopback_answers_only_to_known_names(cluster, admin):
    """A name that an attacker points at 127.0.0.1 gets 403 for every path."""
    for path in ("/", "/api/topics", "/metrics", "/static/base.css"):
        answer = admin.get(path, Host="evil.example:80")
        assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN_HOST")
    assert admin.get("/ping", Host="localhost:4171").status_code == 200
    proxied = cluster.admin(allowed_hosts=["Admin.example"])
    assert proxied.get("/ping", Host="admin.example").status_code == 200
    assert proxied.get("/ping", Host="127.0.0.1").status_code == 200


def test_a_page_on_every_address_answers_to_any_name():
    """On a public address the page accepts every name, unless ``allowed_hosts`` is given."""
    settings = AdminSettings(nsqd_http_addresses=("127.0.0.1:1",))
    with AdminServer(settings, "0.0.0.0", 0) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        answer = requests.get(f"{url}ping", headers={"Host": "any.example"}, timeout=10)
        assert answer.status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "nsq.example.com"])
def test_actions_on_a_public_address_need_allowed_hosts(host):
    """Otherwise an attacker's host name that points at the page could act."""
    settings = AdminSettings(nsqd_http_addresses=("127.0.0.1:1",), allow_actions=True)
    with pytest.raises(ConfigError, match="--allowed-host"):
        AdminServer(settings, host, 0)


def test_an_action_under_an_unknown_host_name_is_rejected(leak_guard):
    settings = AdminSettings(nsqd_http_addresses=("127.0.0.1:1",), allow_actions=True,
                             allowed_hosts=("nsq.example.com",))
    with AdminServer(settings, "0.0.0.0", 0) as server:
        admin = Admin(server.url.replace("0.0.0.0", "127.0.0.1"))
        for headers in ({"Host": "evil.example"}, {}):
            answer = admin.post("/api/topics", {"topic": "made"}, **headers)
            assert (answer.status_code, answer.json()["message"]) == (403, "FORBIDDEN_HOST")
        answer = admin.post("/api/topics", {"topic": "made"}, Host="nsq.example.com")
        assert answer.status_code == 502  # no nsqd is there


def exchange(admin, *lines, body=b""):
    host, port = admin.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body]))
        sock.shutdown(socket.SHUT_WR)
        with sock.makefile("rb") as file:
            return int(file.readline().split()[1]), file.read().decode()


@pytest.mark.parametrize("lines", [
    [b"POST /api/topics HTTP/1.1", b"X-A: b\rX-Forwarded-User: ada"],
    [b"POST /api/topics HTTP/1.1", b"X-A: b\r\rX-Forwarded-User: ada"],
])
def test_a_control_character_in_a_header_is_a_bad_request(cluster, lines):
    """A bare CR would begin a header that a proxy in front does not see."""
    admin = cluster.admin(admin_users=["ada"])
    host = admin.url.removeprefix("http://").encode()
    head = [*lines, b"Host: " + host, b"Content-Type: application/json"]
    assert exchange(admin, *head, body=b'{"topic":"made"}')[0] == 400
    assert admin.json("/api/topics")["topics"] == []
    assert exchange(admin, b"GET /ping HTTP/1.1", b"Host: " + host, b"X-A: b\tc \xc3\xa4")[0] == 200


@pytest.mark.parametrize("host", ["[", "[::1", "]:1"])
def test_a_malformed_host_is_rejected(admin, host):
    """The hint never suggests ``--allowed-host`` without a name."""
    answer = admin.get("/ping", Host=host)
    assert answer.status_code == 403
    assert answer.json()["hint"] == f"invalid Host header: {host!r}"


@pytest.mark.parametrize("lines, hint", [
    ([b"GET /ping HTTP/1.1"], "the request has no Host header"),
    ([b"GET /ping HTTP/1.1", b"Host:"], "the Host header is empty"),
])
def test_a_missing_host_is_rejected(admin, lines, hint):
    status, answer = exchange(admin, *lines)
    assert status == 403 and hint in answer


def test_a_page_is_read_only_by_default(cluster, events):
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


def test_only_users_in_the_acl_header_may_act(cluster, events):
    admin = cluster.admin(admin_users=["ada", "bob"], acl_http_header="X-User")
    body = {"action": "pause"}
    for headers in ({}, {"X-User": "eve"}, {"X-Forwarded-User": "ada"}, {"X-User": ""}):
        assert admin.post("/api/topics/events", body, **headers).status_code == 403
        assert 'data-may-act=""' in admin.get("/", **headers).text
    assert admin.post("/api/topics/events", body, **{"X-User": "bob"}).status_code == 200
    assert 'data-may-act="yes"' in admin.get("/", **{"X-User": "ada"}).text


def test_messages_are_shown_only_with_permission(cluster, events):
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
    for path in ("/", "/api/topics", "/static/base.css", "/nothing", "/topics/b$d"):
        headers = admin.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_huge_body_is_not_read(admin):
    answer = admin.post("/api/live/publish", {"topic": "t", "body": "x" * (3 * 1024 * 1024)})
    assert answer.status_code == 413


def test_a_name_in_a_path_is_shown_as_text(cluster):
    admin: Admin = cluster.admin()
    text = admin.get("/nodes/<script>alert(1)<%2Fscript>").text
    assert "<script>alert" not in text
